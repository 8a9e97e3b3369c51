#include "hub/detail/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <vector>

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kChunkBytes = 1 << 20;

}  // namespace

PartFile::PartFile(fs::path blob, std::uint64_t size_bytes, Fd fd)
    : blob_(std::move(blob)),
      path_(blob_.string() + ".incomplete"),
      id_(blob_.filename().string()),
      size_bytes_(size_bytes),
      digest_(id_, size_bytes),
      fd_(std::move(fd)) {}

Result<PartFile> PartFile::open(const fs::path& blob,
                                std::uint64_t size_bytes,
                                const std::function<bool()>& alive) {
  const std::string path = blob.string() + ".incomplete";
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return errno_error(path);
  PartFile out(blob, size_bytes, std::move(fd));
  KVASIR_TRY_DO(out.hash_existing(alive));
  return out;
}

Status PartFile::hash_existing(const std::function<bool()>& alive) {
  struct stat facts = {};
  if (::fstat(fd_.get(), &facts) != 0) return errno_error(path_);
  if (static_cast<std::uint64_t>(facts.st_size) > size_bytes_) return restart();
  std::vector<std::byte> chunk(kChunkBytes);
  while (true) {
    if (!alive()) return Error{Errc::cancelled, "cancelled"};
    const ssize_t n = ::read(fd_.get(), chunk.data(), chunk.size());
    if (n < 0) return errno_error(path_);
    if (n == 0) return {};
    digest_.update(std::span(chunk).first(static_cast<std::size_t>(n)));
    done_ += static_cast<std::uint64_t>(n);
  }
}

Status PartFile::restart() {
  if (::ftruncate(fd_.get(), 0) != 0 || ::lseek(fd_.get(), 0, SEEK_SET) != 0)
    return errno_error(path_);
  digest_ = Digest(id_, size_bytes_);
  done_ = 0;
  return {};
}

Status PartFile::append(std::span<const std::byte> bytes) {
  if (bytes.size() > size_bytes_ - done_) {
    discard();
    return Error{Errc::io,
                 "more than the " + std::to_string(size_bytes_) +
                     " bytes it should have; what was fetched is deleted",
                 "digest_mismatch"};
  }
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(path_);
    const auto written = bytes.first(static_cast<std::size_t>(n));
    digest_.update(written);
    done_ += written.size();
    bytes = bytes.subspan(written.size());
  }
  return {};
}

void PartFile::discard() { ::unlink(path_.c_str()); }

Status PartFile::finish() {
  const std::string found = is_whole() ? digest_.hex() : "";
  if (found != id_) {
    discard();
    const char* kind = id_.size() == 64 ? "SHA-256" : "git SHA-1";
    return Error{Errc::io,
                 std::string(kind) + " is " + (found.empty() ? "unknown" : found) + ", expected " +
                     id_ + "; what was fetched is deleted",
                 "digest_mismatch"};
  }
  if (::fdatasync(fd_.get()) != 0) return errno_error(path_);
  std::error_code ec;
  fs::rename(path_, blob_, ec);
  if (ec) return io_error(blob_.string() + ": " + ec.message());
  return {};
}

}  // namespace kvasir::hub
