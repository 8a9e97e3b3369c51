#include "fit/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <string>

#include "base/thread_pool.h"

namespace kvasir::fit {
namespace {

// A folder with the files of a machine.
class Root {
 public:
  explicit Root(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) / ("kvasir-fit-" + name)) {
    std::filesystem::remove_all(path_);
    put("proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   12000000 kB\n");
  }
  ~Root() { std::filesystem::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  MachineMemory read() const { return read_machine_memory(path_); }

 private:
  std::filesystem::path path_;
};

constexpr std::uint64_t kKib = 1024;

TEST(FitMachine, ReadsMemoryWithoutACgroup) {
  const Root root("bare");

  const MachineMemory memory = root.read();

  EXPECT_EQ(memory.total_bytes, 16'000'000 * kKib);
  EXPECT_EQ(memory.available_bytes, 12'000'000 * kKib);
  EXPECT_EQ(memory.cgroup_limit_bytes, std::nullopt);
}

TEST(FitMachine, HonoursTheLowestLimitAboveItsGroup) {  // test 8, cgroup v2
  const Root root("v2");
  root.put("proc/self/cgroup", "0::/user.slice/app.scope\n");
  root.put("sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n");
  root.put("sys/fs/cgroup/user.slice/memory.max", "4000000000\n");

  EXPECT_EQ(root.read().cgroup_limit_bytes, 4'000'000'000u);
  EXPECT_EQ(usable_host_bytes(root.read()), 3'000'000'000u);

  root.put("sys/fs/cgroup/user.slice/app.scope/memory.max", "2000000000\n");
  EXPECT_EQ(root.read().cgroup_limit_bytes, 2'000'000'000u);
}

TEST(FitMachine, HonoursTheMountsLimitInAContainer) {  // the path is the host's, or outside
  for (const char* group : {"0::/\n", "0::/docker/4f2a\n", "0::/../other\n", ""}) {
    const Root root("container");
    root.put("proc/self/cgroup", group);
    root.put("sys/fs/cgroup/memory.max", "1000000000\n");

    EXPECT_EQ(root.read().cgroup_limit_bytes, 1'000'000'000u) << group;
  }
}

TEST(FitMachine, HonoursLimitsOfCgroupV1) {
  const Root root("v1");
  root.put("proc/self/cgroup", "9:cpu,cpuacct:/a\n5:memory:/jobs/7\n0::/init.scope\n");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.put("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "3000000000\n");

  EXPECT_EQ(root.read().cgroup_limit_bytes, 3'000'000'000u);
}

TEST(FitMachine, UnlimitedV1GroupsLeaveTheMachinesMemory) {
  const Root root("v1-unlimited");
  root.put("proc/self/cgroup", "5:memory:/\n");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");

  // MemAvailable − 1 GB is what is left: (12'288'000'000 − 1'000'000'000) · 0.75.
  EXPECT_EQ(usable_host_bytes(root.read()), 8'466'000'000u);
}

TEST(FitMachine, UsableIsThreeQuartersOfTheLowestBound) {  // FIT-1
  EXPECT_EQ(usable_host_bytes({.total_bytes = 8'000'000'000}), 6'000'000'000u);
  EXPECT_EQ(usable_host_bytes({.total_bytes = 8'000'000'000, .available_bytes = 7'000'000'000}),
            4'500'000'000u);
  EXPECT_EQ(usable_host_bytes({.total_bytes = 8'000'000'000, .available_bytes = 900'000'000}), 0u);
  EXPECT_EQ(usable_host_bytes({}), 0u);
}

TEST(FitMachine, ThreadsByDefaultAreNeverMoreThanThisProcessMayUse) {  // FIT-35
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), CPU_COUNT(&allowed));

  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(default_thread_count(), 1) << cpu;
  }
  EXPECT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

TEST(FitMachine, WeightsArePinnedWhenAskedOrLargeAndAllowed) {  // FIT-34
  const MachineMemory memory{.total_bytes = 100, .available_bytes = 80};
  EXPECT_TRUE(pins_weights(true, 1, memory, 0));
  EXPECT_FALSE(pins_weights(false, 40, memory, 1000));
  EXPECT_TRUE(pins_weights(false, 41, memory, 1000));
  EXPECT_FALSE(pins_weights(false, 41, memory, 40));
  EXPECT_TRUE(pins_weights(false, 31, {.total_bytes = 100, .cgroup_limit_bytes = 60}, 1000));
  EXPECT_FALSE(pins_weights(false, 1, {}, 1000));
}

}  // namespace
}  // namespace kvasir::fit
