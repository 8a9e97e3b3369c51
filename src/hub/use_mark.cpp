#include "hub/use_mark.h"

#include <fcntl.h>
#include <sys/file.h>

#include <optional>
#include <thread>

#include "hub/detail/places.h"
#include "hub/detail/posix.h"
#include "hub/repo.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kPoll{20};

// -1: the cache cannot be written, so nobody can collect garbage in it either.
Result<int> lock_repo(const fs::path& cache,
                      std::string_view repo,
                      int kind,
                      std::chrono::milliseconds limit) {
  const fs::path folder = locks_path(cache, repo);
  if (!make_folders(folder)) return -1;
  Fd fd(::open((folder / "in-use").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return -1;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (::flock(fd.get(), kind | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno_error(folder / "in-use");
    if (std::chrono::steady_clock::now() >= end)
      return Error{Errc::capacity, std::string(repo) + " is in use by another process"};
    std::this_thread::sleep_for(kPoll);
  }
  return fd.release();
}

// The folder models--org--name that the path is in.
std::optional<fs::path> repo_folder_of(const fs::path& path) {
  for (fs::path at = path; at.has_relative_path(); at = at.parent_path()) {
    if (repo_of(at.filename().string())) return at;
  }
  return std::nullopt;
}

}  // namespace

UseMark::UseMark(UseMark&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
UseMark& UseMark::operator=(UseMark&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
UseMark::~UseMark() {
  if (fd_ >= 0) ::close(fd_);
}

Result<UseMark> UseMark::take(const fs::path& model_path, std::chrono::milliseconds limit) {
  std::error_code ec;
  auto folder = repo_folder_of(fs::absolute(model_path, ec).lexically_normal());
  if (!folder) folder = repo_folder_of(fs::canonical(model_path, ec));  // a link into a cache
  if (!folder) return UseMark();
  return take_repo(folder->parent_path(), *repo_of(folder->filename().string()), limit);
}

Result<UseMark> UseMark::take_repo(const fs::path& cache,
                                   std::string_view repo,
                                   std::chrono::milliseconds limit) {
  UseMark out;
  KVASIR_TRY(out.fd_, lock_repo(cache, repo, LOCK_SH, limit));
  return out;
}

Result<UseMark> UseMark::take_alone(const fs::path& cache, std::string_view repo) {
  UseMark out;
  KVASIR_TRY(out.fd_, lock_repo(cache, repo, LOCK_EX, {}));
  if (!out.is_held()) return io_error(cache.string() + ": cannot be written");
  return out;
}

}  // namespace kvasir::hub
