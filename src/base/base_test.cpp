#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/half.h"
#include "base/philox.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/utf8.h"

namespace kvasir {
namespace {

TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Half, EveryFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 h{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_f32(h))) continue;
    EXPECT_EQ(to_f16(to_f32(h)).bits, h.bits);
  }
}

TEST(Half, Float16RoundsHalfToEven) {
  EXPECT_EQ(to_f16(1.0f + 0x1p-11f).bits, 0x3c00);      // tie, down to even
  EXPECT_EQ(to_f16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);  // tie, up to even
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0);  // tie with zero
  EXPECT_EQ(to_f16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
}

TEST(Half, Bfloat16RoundsHalfToEven) {
  EXPECT_EQ(round_to_bf16(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(round_to_bf16(1.0f + 3 * 0x1p-8f), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(round_to_bf16(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(repair_utf8("a\xF0\x9F\x98z"), "a\xEF\xBF\xBDz");  // cut emoji: one
  EXPECT_EQ(repair_utf8("\xE0\x80\x80"),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong: three
  EXPECT_TRUE(decode_utf8("\xE2\x82").truncated);
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));  // surrogate
}

int cpus_of_this_thread() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return CPU_COUNT(&allowed);
}

// FIT-35. Every part waits for the others, so that each is run by its own thread.
TEST(ThreadPool, KeepsWorkersOnTheirCoresWhereItHasAllOfThem) {
  const int n_cores = default_thread_count();
  if (n_cores < 2 || n_cores != cpus_of_this_thread())
    GTEST_SKIP() << "not a thread for each of several CPUs";
  for (const int n : {n_cores, n_cores + 1}) {
    const int before = cpus_of_this_thread();
    ThreadPool pool(n);
    std::atomic<int> n_here{0};
    std::vector<int> n_cpus(static_cast<std::size_t>(n));
    pool.run([&](int part) {
      ++n_here;
      while (n_here < n) std::this_thread::yield();
      n_cpus[static_cast<std::size_t>(part)] = cpus_of_this_thread();
    });
    EXPECT_EQ(n_cpus[0], before);
    for (std::size_t part = 1; part < n_cpus.size(); ++part)
      EXPECT_EQ(n_cpus[part] == 1, n == n_cores) << part;
  }
}

TEST(ThreadPool, RunsEveryPartExactlyOnceARegion) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};

  for (int region = 0; region < 1000; ++region) pool.run([&](int part) { sum += 1 << (8 * part); });

  EXPECT_EQ(sum.load(), 1000 * (1 + 256 + 65536));
}

Result<int> half_of(int x) {
  if (x % 2) return invalid("odd");
  return x / 2;
}
Result<int> quarter_of(int x) {
  KVASIR_TRY(const int h, half_of(x));
  return half_of(h);
}

TEST(Result, TryPassesTheErrorOn) {
  EXPECT_EQ(*quarter_of(8), 2);
  EXPECT_EQ(quarter_of(6).error().what, "odd");
}

}  // namespace
}  // namespace kvasir
