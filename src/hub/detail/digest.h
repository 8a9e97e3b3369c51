// Streaming digests that name a hub blob: SHA-256 for LFS files, the SHA-1 of git's blob object for
// the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvasir::hub {

// 64 or 40 lower-case hex digits: safe as a file name, and says which digest it is.
bool is_blob_id(std::string_view id) noexcept;

class Digest {
 public:
  // Of the kind that `id` is; size_bytes is part of git's digest.
  Digest(std::string_view id, std::uint64_t size_bytes);
  void update(std::span<const std::byte> bytes);
  std::string hex();  // ends it

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace kvasir::hub
