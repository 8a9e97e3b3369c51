// A file mapped read-only into memory. The mapping stays where it is when the object moves; pages
// come in on first touch. A file that another program truncates while it is mapped cannot be
// guarded against here.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace kvasir::formats {

class MappedFile {
 public:
  // Symbolic links are followed (hub snapshots are links). Not a regular file, empty, unreadable →
  // an error naming it.
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// Gives back the pages that lie wholly inside [begin, begin + size_bytes) of a mapping; a later
// read maps them anew.
void release_whole_pages(const std::byte* begin, std::size_t size_bytes) noexcept;

}  // namespace kvasir::formats
