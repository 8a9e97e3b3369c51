#include "fit/machine.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/byte_size.h"
#include "fit/detail/saturating.h"

namespace kvasir::fit {
namespace {

namespace fs = std::filesystem;

void lower(std::optional<std::uint64_t>& limit, std::optional<std::uint64_t> to) {
  if (to) limit = std::min(limit.value_or(kMost), *to);
}

// A limit file: a number of bytes, or "max".
std::optional<std::uint64_t> read_limit(const fs::path& file) {
  std::string word;
  if (!(std::ifstream(file) >> word)) return std::nullopt;
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bytes);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return bytes;
}

// A group's own limit and those of every group above it, up to the mount. In a container the path
// may be the host's, which is not mounted; the mount itself then is the container's group.
void read_group_limits(const fs::path& mount,
                       std::string_view group,
                       const char* file,
                       std::optional<std::uint64_t>& limit) {
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  if (!relative.empty() && *relative.begin() == "..") relative.clear();  // outside the namespace
  while (!relative.empty() && relative != ".") {
    lower(limit, read_limit(mount / relative / file));
    relative = relative.parent_path();
  }
  lower(limit, read_limit(mount / file));
}

// "0::/group" of v2, "7:cpu,memory:/group" of v1.
std::optional<std::uint64_t> read_cgroup_limit(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::optional<std::uint64_t> limit;
  std::string unified = "/", memory = "/";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") unified = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) memory = line.substr(second + 1);
  }
  read_group_limits(mount, unified, "memory.max", limit);
  read_group_limits(mount / "memory", memory, "memory.limit_in_bytes", limit);
  return limit;
}

}  // namespace

MachineMemory read_machine_memory(const fs::path& root) {
  MachineMemory out;
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kib = 0;
    if (!(words >> key >> kib)) continue;
    if (key == "MemTotal:") out.total_bytes = times(kib, 1024);
    if (key == "MemAvailable:") out.available_bytes = times(kib, 1024);
  }
  out.cgroup_limit_bytes = read_cgroup_limit(root);
  return out;
}

std::uint64_t usable_host_bytes(const MachineMemory& memory) noexcept {
  std::uint64_t available = std::min(memory.total_bytes, memory.cgroup_limit_bytes.value_or(kMost));
  if (memory.available_bytes)
    available = std::min(available, minus(*memory.available_bytes, kGigabyte));
  return available / 4 * 3 + available % 4 * 3 / 4;
}

bool pins_weights(bool is_asked,
                  std::uint64_t weight_bytes,
                  const MachineMemory& memory,
                  std::uint64_t pin_limit_bytes) noexcept {
  std::uint64_t available = memory.available_bytes.value_or(memory.total_bytes);
  if (memory.cgroup_limit_bytes) available = std::min(available, *memory.cgroup_limit_bytes);
  return is_asked ||
         (available > 0 && weight_bytes > available / 2 && weight_bytes <= pin_limit_bytes);
}

}  // namespace kvasir::fit
