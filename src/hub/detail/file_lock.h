// FileLock: one downloader a blob, over processes and machines that share the cache. A file made
// with O_EXCL that names its owner; it is stolen when the owner is dead or gave no sign of life for
// an hour. Judging and removing happens under a short flock beside it, so that two thieves cannot
// remove each other's lock.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "hub/detail/posix.h"

namespace kvasir::hub {

struct LockWait {
  const std::atomic<bool>* cancel = nullptr;
  std::chrono::milliseconds poll{100};
  std::chrono::seconds limit{3600};
};

inline constexpr std::chrono::hours kLockLife{1};

class FileLock {
 public:
  // The folder must exist. Errors: capacity (still held after wait.limit), cancelled, io.
  static Result<FileLock> acquire(const std::filesystem::path& path, const LockWait& wait);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  void touch();  // a sign of life; costs a system call once a minute at most

 private:
  FileLock(std::filesystem::path path, std::string owner);
  std::filesystem::path path_;  // empty: moved from
  std::string owner_;
  std::chrono::steady_clock::time_point touched_;
};

// Also takes the flock that huggingface_hub's own downloads hold on `path`, so that the two
// programs do not write one file at once. Empty where the file system has no such locks.
Result<Fd> take_flock(const std::filesystem::path& path, const LockWait& wait);

// Held by somebody alive. For gc: the file beside it is being written.
bool is_lock_alive(const std::filesystem::path& path);

}  // namespace kvasir::hub
