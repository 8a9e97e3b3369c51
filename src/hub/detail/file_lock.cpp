#include "hub/detail/file_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "hub/detail/posix.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::minutes kTouchEvery{1};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 && name[0] ? name : "localhost";
}

// Clock ticks since boot at which the process started: a process id that was given out again has
// another. Field 22 of proc(5)'s stat; "0" where that cannot be read.
std::string start_of(long pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return "0";
  std::istringstream rest(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  return rest ? field : "0";
}

// "<pid> <start> <host> <number of the lock in its process>"
std::string new_owner() {
  static std::atomic<unsigned> n_locks{0};
  const long pid = ::getpid();
  return std::to_string(pid) + " " + start_of(pid) + " " + host_name() + " " +
         std::to_string(n_locks++) + "\n";
}

std::string owner_in(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(512, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

// A lock without a readable owner is judged by its age alone: its maker may be about to write.
bool is_owner_alive(const std::string& owner) {
  std::istringstream in(owner);
  long pid = 0;
  std::string start, host;
  if (!(in >> pid) || pid <= 0) return true;
  in >> start >> host;
  if (!host.empty() && host != host_name()) return true;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  const std::string now = start_of(pid);
  return start.empty() || start == "0" || now == "0" || start == now;
}

bool is_stale(const fs::path& path, const struct stat& facts) {
  const auto age =
      std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(facts.st_mtime);
  return age > kLockLife || !is_owner_alive(owner_in(path));
}

// Exclusive while a lock file is judged and removed; one for all locks of a folder.
Fd guard_of(const fs::path& path) {
  const fs::path guard = path.parent_path() / "kvasir.guard";
  Fd fd(::open(guard.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (fd) (void)::flock(fd.get(), LOCK_EX);
  return fd;
}

void remove_if_stale(const fs::path& path) {
  const Fd guard = guard_of(path);
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) == 0 && is_stale(path, facts)) ::unlink(path.c_str());
}

enum class Take { taken, held, failed };

Take try_take(const fs::path& path, const std::string& owner) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return errno == EEXIST ? Take::held : Take::failed;
  if (::write(fd.get(), owner.data(), owner.size()) == static_cast<ssize_t>(owner.size()))
    return Take::taken;
  ::unlink(path.c_str());
  return Take::failed;
}

}  // namespace

FileLock::FileLock(fs::path path, std::string owner)
    : path_(std::move(path)),
      owner_(std::move(owner)),
      touched_(std::chrono::steady_clock::now()) {}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      owner_(std::move(other.owner_)),
      touched_(other.touched_) {}

FileLock::~FileLock() {
  if (path_.empty()) return;
  const Fd guard = guard_of(path_);
  if (owner_in(path_) == owner_) ::unlink(path_.c_str());
}

Result<FileLock> FileLock::acquire(const fs::path& path, const LockWait& wait) {
  const auto end = std::chrono::steady_clock::now() + wait.limit;
  const std::string owner = new_owner();
  while (true) {
    const Take take = try_take(path, owner);
    if (take == Take::taken) return FileLock(path, owner);
    if (take == Take::failed) return errno_error(path);
    remove_if_stale(path);
    std::error_code ec;
    if (!fs::exists(fs::symlink_status(path, ec))) continue;
    if (wait.cancel && *wait.cancel) return Error{Errc::cancelled, "cancelled"};
    if (std::chrono::steady_clock::now() >= end)
      return Error{Errc::capacity, path.string() + ": held by process " + owner_in(path)};
    std::this_thread::sleep_for(wait.poll);
  }
}

void FileLock::touch() {
  const auto now = std::chrono::steady_clock::now();
  if (now - touched_ < kTouchEvery) return;
  touched_ = now;
  (void)::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
}

Result<Fd> take_flock(const fs::path& path, const LockWait& wait) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return errno_error(path);
  const auto end = std::chrono::steady_clock::now() + wait.limit;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Fd();
    if (wait.cancel && *wait.cancel) return Error{Errc::cancelled, "cancelled"};
    if (std::chrono::steady_clock::now() >= end)
      return Error{Errc::capacity, path.string() + ": held by another program"};
    std::this_thread::sleep_for(wait.poll);
  }
  return fd;
}

bool is_lock_alive(const fs::path& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 && !is_stale(path, facts);
}

}  // namespace kvasir::hub
