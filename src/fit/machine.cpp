#include "fit/machine.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "base/byte_size.h"
#include "base/cgroup.h"
#include "fit/detail/saturating.h"

namespace kvasir::fit {
namespace fs = std::filesystem;

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
  out.cgroup_limit_bytes = cgroup_memory_limit(root);
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
