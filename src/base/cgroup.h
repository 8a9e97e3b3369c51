// What control groups let this process use: the lowest limit of its own group and of every group
// above it, v2 and v1. What cannot be read does not limit. Read anew at each call; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace kvasir {

// Below `root`: proc/self/cgroup and sys/fs/cgroup.
// memory.max (v2) and memory.limit_in_bytes (v1), in bytes.
std::optional<std::uint64_t> cgroup_memory_limit(const std::filesystem::path& root = "/");
// Cores: quota ÷ period of cpu.max (v2), of cpu.cfs_quota_us and cpu.cfs_period_us (v1).
std::optional<double> cgroup_cpu_limit(const std::filesystem::path& root = "/");

}  // namespace kvasir
