// Picking tokens: the fast version against the definition, token by token (SAMP-2, SAMP-12).
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "backend/ref/ref_device.h"
#include "ops/pick_testing.h"

namespace kvasir::backend::cpu {
namespace {

TEST(CpuPick, IsRefsTokenOfEveryRow) {  // EXE-25: none of a row that is not finite
  const auto ref = ref::make_ref_device(ref::RefMode::oracle);
  for (const int n_threads : {1, 3}) {
    const auto cpu = *make_cpu_device({.n_threads = n_threads});
    for (const std::uint32_t vocab : {1u, 3u, 64u, 127u, 1000u, 4097u, 12289u}) {
      const auto c = ops::testing::draw_pick_case(vocab, vocab);

      EXPECT_EQ(ops::testing::pick_with(*cpu, c), ops::testing::pick_with(*ref, c)) << vocab;
    }
  }
}

TEST(CpuPick, ARowsTokenIsItsOwnWhateverItsNeighboursWant) {  // the same-bits promise
  const auto cpu = *make_cpu_device({.n_threads = 2});
  auto c = ops::testing::draw_pick_case(500, 1);
  const auto all = ops::testing::pick_with(*cpu, c);
  for (std::size_t r = 1; r < c.rows.size(); r += 2) c.rows[r].kind = PickKind::none;
  const auto some = ops::testing::pick_with(*cpu, c);

  for (std::size_t r = 0; r < all.size(); r += 2) EXPECT_EQ(some[r], all[r]);
}

TEST(Gumbel, IsWithinTwoUlpOfLibm) {  // docs/numerics.md
  for (std::uint64_t w = 0; w < 0x1'0000'0000; w += 65'521 * 3) {
    const auto word = static_cast<std::uint32_t>(w);
    const double v = std::min((word + 0.5) * 0x1p-32, 1.0 - 0x1p-24);
    const double inner = -std::log1p(-v), expected = -std::log(inner);
    // Near inner = 1 the outer logarithm is as wrong as its argument.
    EXPECT_NEAR(ops::gumbel(word), expected, 4 * 0x1p-53 * std::max(1.0, std::abs(expected)));
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
