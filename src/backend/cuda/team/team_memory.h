// TeamMemory: one address for memory that every GPU of a team has of its own. Whole regions exist
// on each member; of a split region, which is a row of blocks, each member holds its equal part of
// every block, and the address is reserved but never touched. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "tensor/buffer.h"

namespace kvasir::backend::cuda {

class TeamMemory {
 public:
  struct Region {
    std::byte* base = nullptr;
    std::size_t size_bytes = 0;
    std::size_t block_bytes = 0;  // 0: whole
    std::vector<Buffer> parts;    // a member each

    bool is_split() const noexcept { return block_bytes > 0; }
  };
  // Bytes of a split region that lie together in one member's memory.
  struct Piece {
    std::size_t member;
    std::byte* data;
    std::size_t size_bytes;
  };

  TeamMemory() = default;
  TeamMemory(const TeamMemory&) = delete;
  TeamMemory& operator=(const TeamMemory&) = delete;

  // A buffer that stands for the parts, whose memory goes with it. Outlived by this.
  Buffer add_whole(std::size_t size_bytes, std::vector<Buffer> parts);
  // No buffer where the system has no addresses left.
  Buffer add_split(std::size_t n_blocks, std::size_t block_bytes, std::vector<Buffer> parts);

  // The region that holds an address; null: host memory.
  const Region* find(const void* address) const noexcept;
  // What a member has there: of a whole region, or of a split one at its start; host memory is
  // everybody's.
  std::byte* at(const std::byte* address, std::size_t member) const noexcept;
  template <class T>
  T* at(T* address, std::size_t member) const noexcept {
    return reinterpret_cast<T*>(at(reinterpret_cast<const std::byte*>(address), member));
  }
  // Where bytes from an address of a split region on lie, at most `size_bytes` of them.
  static Piece piece(const Region& region,
                     const std::byte* address,
                     std::size_t size_bytes) noexcept;

 private:
  static void forget(void* self, std::byte* base, std::size_t size_bytes) noexcept;
  Buffer add(Region region);

  std::map<const std::byte*, Region> regions_;
};

}  // namespace kvasir::backend::cuda
