#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// A group's own folder and those of every group above it, up to the mount. In a container the path
// may be the host's, which is not mounted; the mount itself then is the container's group.
void add_folders(const fs::path& mount, std::string_view group, std::vector<fs::path>& out) {
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  if (!relative.empty() && *relative.begin() == "..") relative.clear();  // outside the namespace
  for (; !relative.empty() && relative != "."; relative = relative.parent_path())
    out.push_back(mount / relative);
  out.push_back(mount);
}

// The folders whose limits of `controller` apply; "0::/group" of v2, "7:cpu,memory:/group" of v1.
std::vector<fs::path> folders_of(const fs::path& root, std::string_view controller) {
  const std::string wanted = "," + std::string(controller) + ",";
  std::string unified = "/", own = "/";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") unified = line.substr(second + 1);
    if (controllers.find(wanted) != std::string::npos) own = line.substr(second + 1);
  }
  const fs::path mount = root / "sys/fs/cgroup";
  std::vector<fs::path> out;
  add_folders(mount, unified, out);
  add_folders(mount / controller, own, out);
  return out;
}

// A word of a limit file as a number; "max" and what is no number are none.
std::optional<std::uint64_t> number(const std::string& word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::string word;
  return std::ifstream(file) >> word ? number(word) : std::nullopt;
}

template <class Value>
void lower(std::optional<Value>& limit, std::optional<Value> to) {
  if (to) limit = limit ? std::min(*limit, *to) : *to;
}

std::optional<double> cores(std::optional<std::uint64_t> quota,
                            std::optional<std::uint64_t> period) {
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::optional<std::uint64_t> cgroup_memory_limit(const fs::path& root) {
  std::optional<std::uint64_t> limit;
  for (const fs::path& folder : folders_of(root, "memory")) {
    lower(limit, read_number(folder / "memory.max"));
    lower(limit, read_number(folder / "memory.limit_in_bytes"));
  }
  return limit;
}

std::optional<double> cgroup_cpu_limit(const fs::path& root) {
  std::optional<double> limit;
  for (const fs::path& folder : folders_of(root, "cpu")) {
    std::string quota, period;
    if (std::ifstream(folder / "cpu.max") >> quota >> period)
      lower(limit, cores(number(quota), number(period)));
    lower(limit, cores(read_number(folder / "cpu.cfs_quota_us"),  // -1: none
                       read_number(folder / "cpu.cfs_period_us")));
  }
  return limit;
}

}  // namespace kvasir
