#include "base/pinned.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "base/log.h"

namespace kvasir {
namespace {

thread_local int t_depth = 0;
thread_local bool t_warned = false;

}  // namespace

PinnedScope::PinnedScope() noexcept {
  if (t_depth++ == 0) t_warned = false;
}
PinnedScope::~PinnedScope() { --t_depth; }

bool is_pinning() noexcept { return t_depth > 0; }

void pin_memory(const void* data, std::size_t size_bytes) noexcept {
  if (!is_pinning() || mlock(data, size_bytes) == 0 || t_warned) return;
  t_warned = true;
  log::warning("--mlock: the system does not pin all weights: " +
               std::string(std::strerror(errno)) + " (see ulimit -l)");
}

std::uint64_t pin_limit_bytes() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max()
                                         : limit.rlim_cur;
}

}  // namespace kvasir
