#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// A folder with the files of a machine.
class Root {
 public:
  explicit Root(const std::string& name)
      : path_(fs::path(testing::TempDir()) / ("kvasir-cgroup-" + name)) {
    fs::remove_all(path_);
  }
  ~Root() { fs::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

TEST(Cgroup, WithoutGroupsNothingLimits) {
  const Root root("bare");

  EXPECT_EQ(cgroup_cpu_limit(root.path()), std::nullopt);
  EXPECT_EQ(cgroup_memory_limit(root.path()), std::nullopt);
}

TEST(Cgroup, TheLowestCpuLimitAboveAGroupCounts) {  // FIT-35
  const Root root("v2");
  root.put("proc/self/cgroup", "0::/user.slice/app.scope\n");
  root.put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n");
  root.put("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  root.put("sys/fs/cgroup/cpu.max", "800000 100000\n");

  EXPECT_EQ(cgroup_cpu_limit(root.path()), 2.5);
}

TEST(Cgroup, TheMountIsTheGroupOfAContainer) {
  for (const char* group : {"0::/\n", "0::/docker/4f2a\n", "0::/../other\n", ""}) {
    const Root root("container");
    root.put("proc/self/cgroup", group);
    root.put("sys/fs/cgroup/cpu.max", "150000 100000\n");

    EXPECT_EQ(cgroup_cpu_limit(root.path()), 1.5) << group;
  }
}

TEST(Cgroup, QuotasOfVersionOneCountAndMinusOneIsNone) {
  const Root root("v1");
  root.put("proc/self/cgroup", "9:cpu,cpuacct:/jobs/7\n");
  root.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root.path()), std::nullopt);

  root.put("sys/fs/cgroup/cpu/jobs/7/cpu.cfs_quota_us", "400000\n");
  root.put("sys/fs/cgroup/cpu/jobs/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root.path()), 4.0);
}

TEST(Cgroup, WhatIsNoNumberDoesNotLimit) {
  const Root root("broken");
  for (const char* text :
       {"", "max", "100000", "x 100000", "100000 0", "-5 100000", "99999999999999999999 1"}) {
    root.put("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cgroup_cpu_limit(root.path()), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace kvasir
