#include "base/pinned.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <string>

namespace kvasir {
namespace {

std::uint64_t locked_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmLck:")) return std::stoull(line.substr(6));
  return 0;
}

TEST(Pinned, MemoryOfAScopeStaysLockedAndTheOutermostEndsIt_FIT34) {
  constexpr std::size_t kPages = 4 * 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make mlock do nothing";
#endif
  if (pin_limit_bytes() < kPages) GTEST_SKIP() << "the process may pin nothing";
  void* const data =
      mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  const std::uint64_t before = locked_kb();

  pin_memory(data, kPages);  // outside: nothing
  EXPECT_EQ(locked_kb(), before);
  {
    const PinnedScope outer;
    { const PinnedScope inner; }
    EXPECT_TRUE(is_pinning());
    pin_memory(data, kPages);
    EXPECT_EQ(locked_kb(), before + 16);
  }
  EXPECT_FALSE(is_pinning());
  EXPECT_EQ(locked_kb(), before + 16);

  munmap(data, kPages);
  EXPECT_EQ(locked_kb(), before);
}

TEST(Pinned, ARefusalIsNoError_FIT34) {
  const PinnedScope scope;
  pin_memory(nullptr, std::size_t{1} << 46);
  EXPECT_TRUE(is_pinning());
}

}  // namespace
}  // namespace kvasir
