#include "backend/cpu/limits.h"

#include <gtest/gtest.h>

#include "backend/cpu/limits/matrix_loops.h"

namespace kvasir::backend::cpu {
namespace {

TEST(Limits, AreMeasuredForOneThreadAndForAll) {
  const Limits limits = measure_limits(2);

  EXPECT_EQ(limits.n_threads, 2);
  EXPECT_GT(limits.read_gb_s_one, 0.1);
  EXPECT_GT(limits.read_gb_s, 0.1);
  EXPECT_GT(limits.fma_gflop_s_one, 0.1);
  EXPECT_GT(limits.fma_gflop_s, 0.1);
  EXPECT_LE(limits.shared_time, 1.0);
  for (const MatrixLimit& limit : limits.matrix) {
    EXPECT_GT(limit.gop_s_one, 0.1) << limit.name;
    EXPECT_GT(limit.gop_s, 0.1) << limit.name;
  }
}

TEST(Limits, OfEveryMatrixInstructionOfThisCpuAreNamed) {
  const Limits limits = measure_limits(1);
  std::size_t n = 0;
  for (const MatrixLoop& loop : matrix_loops()) n += loop.is_supported() ? 1 : 0;

  EXPECT_EQ(limits.matrix.size(), n);
  EXPECT_EQ(limits.fma_gflop_s, limits.fma_gflop_s_one);
  EXPECT_GT(float_limit(limits).gop_s, 0.1);
}

TEST(Limits, TheUnitOfByteProductsIsTheFastestOfThose) {
  Limits limits;
  limits.fma_gflop_s = 200;
  EXPECT_EQ(byte_limit(limits).name, "f32 FMA");
  limits.matrix = {{"avx512-vnni int8", 1, 700}, {"amx bf16", 1, 4000}, {"amx int8", 1, 8000}};
  EXPECT_EQ(byte_limit(limits).name, "amx int8");
  EXPECT_EQ(float_limit(limits).name, "amx bf16");
}

TEST(Limits, TheTimeSharedWithANeighbourIsAShareOrUnknown) {
#if !defined(__x86_64__)
  EXPECT_LT(share_of_shared_time(), 0.0);
#else
  EXPECT_GE(share_of_shared_time(), 0.0);
  EXPECT_LE(share_of_shared_time(), 1.0);
#endif
}

}  // namespace
}  // namespace kvasir::backend::cpu
