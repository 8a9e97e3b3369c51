#include "backend/cpu/detail/weight_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

bool is_zero(const Buffer& b) {
  return std::all_of(b.data(), b.data() + b.size_bytes(),
                     [](std::byte x) { return x == std::byte{0}; });
}

TEST(WeightMemory, BuffersAreZeroedAlignedAndApart) {
  WeightMemory memory;
  std::vector<Buffer> buffers;
  for (const std::size_t size : {std::size_t{100}, kMiB, kMiB + 1, 3 * kMiB, 20 * kMiB}) {
    buffers.push_back(*memory.allocate(size));
    EXPECT_EQ(buffers.back().size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64, 0u);
    EXPECT_TRUE(is_zero(buffers.back()));
    std::fill_n(buffers.back().data(), size, static_cast<std::byte>(buffers.size()));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(buffers[i].data()[0], static_cast<std::byte>(i + 1));
    EXPECT_EQ(buffers[i].data()[buffers[i].size_bytes() - 1], static_cast<std::byte>(i + 1));
  }
}

TEST(WeightMemory, SmallNeighboursShareHugePages) {
  WeightMemory memory;
  const Buffer a = *memory.allocate(kMiB), b = *memory.allocate(kMiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % (2 * kMiB), 0u);
  EXPECT_EQ(b.data(), a.data() + kMiB);
}

TEST(WeightMemory, BuffersOutliveItAndRegionsFollowEachOther) {
  std::vector<Buffer> buffers;
  {
    WeightMemory memory;
    for (int i = 0; i < 40; ++i) buffers.push_back(*memory.allocate(14 * kMiB));  // 18 a region
  }
  for (Buffer& b : buffers) b.data()[0] = b.data()[b.size_bytes() - 1] = std::byte{7};
  buffers.erase(buffers.begin(), buffers.begin() + 25);
  for (const Buffer& b : buffers) EXPECT_EQ(b.data()[0], std::byte{7});
}

}  // namespace
}  // namespace kvasir::backend::cpu
