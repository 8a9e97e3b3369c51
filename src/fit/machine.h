// How much memory this machine lets the process use (FIT-1). Read anew at each call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace kvasir::fit {

struct MachineMemory {
  std::uint64_t total_bytes = 0;                         // MemTotal
  std::optional<std::uint64_t> available_bytes = {};     // MemAvailable
  std::optional<std::uint64_t> cgroup_limit_bytes = {};  // the lowest limit that applies
};

// From proc/meminfo below `root`, and the limits of base/cgroup.h there.
MachineMemory read_machine_memory(const std::filesystem::path& root = "/");

// For ref and cpu: 0.75 of min(total, cgroup limit), with that never above MemAvailable − 1 GB.
std::uint64_t usable_host_bytes(const MachineMemory& memory) noexcept;

// Whether weights are pinned (FIT-34): when asked, or when they are more than half of what is
// available and the system's limit allows it.
bool pins_weights(bool is_asked,
                  std::uint64_t weight_bytes,
                  const MachineMemory& memory,
                  std::uint64_t pin_limit_bytes) noexcept;

}  // namespace kvasir::fit
