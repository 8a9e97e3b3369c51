#include "formats/detail/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kvasir::formats {
namespace {

Error system_error(const std::filesystem::path& path) {
  const int code = errno;
  const std::string what = path.string() + ": " + std::strerror(code);
  return code == ENOENT ? not_found(what) : io_error(what);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(path);
  struct stat facts = {};
  if (::fstat(fd, &facts) != 0) {
    Error error = system_error(path);
    ::close(fd);
    return error;
  }
  if (!S_ISREG(facts.st_mode) || facts.st_size == 0) {
    ::close(fd);
    return invalid(path.string() +
                   (S_ISREG(facts.st_mode) ? ": empty file" : ": not a regular file"));
  }
  const auto size_bytes = static_cast<std::size_t>(facts.st_size);
  void* const at = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  Error error = at == MAP_FAILED ? system_error(path) : Error{};
  ::close(fd);
  if (at == MAP_FAILED) return error;
  return MappedFile({static_cast<const std::byte*>(at), size_bytes});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void release_whole_pages(const std::byte* begin, std::size_t size_bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto from = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const auto to = (reinterpret_cast<std::uintptr_t>(begin) + size_bytes) / page * page;
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);  // advice only
}

}  // namespace kvasir::formats
