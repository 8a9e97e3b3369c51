// Norms, rotary positions, activations, copies and routing: a few ulp from the oracle; a row's bits
// its own.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/testing/host_values.h"

namespace kvasir::backend::cuda::testing {
namespace {

constexpr std::uint32_t kRows = 37;

// |a - b| in units of 2^-24 relative to the larger of |b| and `scale`.
double worst_ulps(const std::vector<float>& a, const std::vector<float>& b, double scale) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = std::max(
        worst,
        std::isnan(d) ? 1e30 : d / std::max(std::abs(static_cast<double>(b[i])), scale) * 0x1p24);
  }
  return worst;
}

// f(device, matrix, first row) in place: close to the oracle on all rows, and the last rows alone
// have the bits that they have among all.
template <class F>
void expect_right(std::vector<float> x, double max_ulps, double scale, F&& f) {
  const auto n_cols = static_cast<std::uint32_t>(x.size() / kRows);
  constexpr std::uint32_t kFirst = 34;
  auto exact = x, recorded = x;
  std::vector<float> alone(x.begin() + kFirst * n_cols, x.end());
  f(*make(), mat_view(x.data(), kRows, n_cols), 0);
  f(*make(Mode::recorded), mat_view(recorded.data(), kRows, n_cols), 0);
  f(*make(), mat_view(alone.data(), kRows - kFirst, n_cols), kFirst);
  f(*make_oracle(), mat_view(exact.data(), kRows, n_cols), 0);
  EXPECT_LE(worst_ulps(x, exact, scale), max_ulps);
  EXPECT_TRUE(same_bits(x, recorded));
  EXPECT_TRUE(same_bits(alone, {x.begin() + kFirst * n_cols, x.end()}));
}

std::vector<float> draw_matrix(std::uint32_t n_cols, float deviation = 1.0f) {
  std::mt19937 rng(n_cols);
  return random_floats(std::size_t{kRows} * n_cols, rng, deviation);
}

TEST(CudaNorms, AreRightForRowsAndHeads) {
  KVASIR_NEEDS_CUDA();
  for (const auto& [n_cols, group] : {std::pair{576u, 576u},
                                      {2000u, 2000u},
                                      {4096u, 4096u},
                                      {8192u, 8192u},
                                      {192u, 64u},
                                      {240u, 80u},
                                      {24u, 8u},
                                      {5u, 5u},
                                      {1537u, 1537u}}) {
    const auto weight = draw_matrix(group), bias = draw_matrix(group);
    for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
      expect_right(draw_matrix(n_cols), 12, 0, [&, g = group](auto& d, MatView x, auto) {
        d.ops().rms_norm(d, {.x = x, .weight = w, .group = g, .eps = 1e-5f, .out = x});
      });
    }
    expect_right(draw_matrix(n_cols), 12, 0, [&, g = group](auto& d, MatView x, auto) {
      d.ops().l2_norm(d, {.x = x, .group = g, .eps = 1e-6f, .scale = 0.5f, .out = x});
    });
    if (group != n_cols || n_cols < 10) continue;
    for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
      expect_right(draw_matrix(n_cols), 24, 1, [&](auto& d, MatView x, auto) {
        d.ops().layer_norm(d, {.x = x, .weight = weight.data(), .bias = b, .eps = 1e-5f, .out = x});
      });
    }
  }
}

TEST(CudaNorms, HaveTheSameBitsInColumnsOfAWiderMatrix) {
  KVASIR_NEEDS_CUDA();
  const std::uint32_t n = 1536;
  auto x = draw_matrix(n);
  std::vector<float> wide(std::size_t{kRows} * (n + 3), 7.0f), out(x.size());
  for (std::size_t r = 0; r < kRows; ++r) std::copy_n(&x[r * n], n, &wide[r * (n + 3) + 1]);
  const auto device = make();
  device->ops().rms_norm(*device, {.x = mat_view(x.data(), kRows, n),
                                   .group = n,
                                   .eps = 1e-5f,
                                   .out = mat_view(out.data(), kRows, n)});
  const MatView columns{wide.data() + 1, kRows, n, n + 3};
  device->ops().rms_norm(*device, {.x = columns, .group = n, .eps = 1e-5f, .out = columns});
  for (std::size_t r = 0; r < kRows; ++r)
    EXPECT_EQ(std::memcmp(&out[r * n], &wide[r * (n + 3) + 1], n * sizeof(float)), 0);
}

TEST(CudaRope, IsRightInBothPairings) {
  KVASIR_NEEDS_CUDA();
  const std::uint32_t n_pairs = 20, dim = 48;
  std::vector<float> cos, sin;
  std::vector<std::uint32_t> positions;
  for (int p = 0; p < 100; ++p) {
    for (std::uint32_t i = 0; i < n_pairs; ++i) {
      cos.push_back(std::cos(static_cast<float>(p) * 0.1f * static_cast<float>(i + 1)));
      sin.push_back(std::sin(static_cast<float>(p) * 0.1f * static_cast<float>(i + 1)));
    }
  }
  for (std::uint32_t r = 0; r < kRows; ++r) positions.push_back((r * 31 + 7) % 100);
  for (const bool interleaved : {false, true}) {
    expect_right(draw_matrix(3 * dim), 4, 0.5, [&](auto& d, MatView x, std::uint32_t first) {
      d.ops().rope(d, {.x = x,
                       .head_dim = dim,
                       .n_pairs = n_pairs,
                       .interleaved = interleaved,
                       .positions = std::span(positions).subspan(first, x.n_rows),
                       .cos = cos.data(),
                       .sin = sin.data()});
    });
  }
}

TEST(CudaActMul, IsRight) {
  KVASIR_NEEDS_CUDA();
  for (const std::uint32_t n : {64u, 51u, 4096u}) {
    auto up = draw_matrix(n, 2.0f);
    for (int i = 0; i < 6; ++i) {
      expect_right(draw_matrix(n, 4.0f), 24, 0.1, [&](auto& d, MatView x, std::uint32_t first) {
        d.ops().act_mul(d, {.gate = x,
                            .up = mat_view(up.data() + std::size_t{first} * n, x.n_rows, n),
                            .activation = static_cast<ops::Activation>(i),
                            .limit = 3.0f,
                            .out = x});
      });
    }
  }
}

TEST(CudaActMul, ClampsLetANaNThrough) {
  KVASIR_NEEDS_CUDA();
  std::vector<float> gate{std::nanf(""), 1, 9}, up{1, std::nanf(""), -9};
  const auto device = make();
  device->ops().act_mul(*device, {.gate = mat_view(gate.data(), 1, 3),
                                  .up = mat_view(up.data(), 1, 3),
                                  .activation = ops::Activation::clamped_swiglu,
                                  .limit = 7.0f,
                                  .out = mat_view(gate.data(), 1, 3)});
  EXPECT_TRUE(std::isnan(gate[0]) && std::isnan(gate[1]));
  EXPECT_NEAR(gate[2], 7.0f * (-7.0f + 1.0f), 1e-3f);
}

TEST(CudaRows, AreGatedAddedScaledAndGathered) {
  KVASIR_NEEDS_CUDA();
  for (const std::uint32_t n : {64u, 51u}) {
    auto gate = draw_matrix(1), y = draw_matrix(n + 4);
    expect_right(draw_matrix(n), 6, 0, [&](auto& d, MatView x, std::uint32_t first) {
      d.ops().gate_rows(d, {.x = x, .gate = mat_view(gate.data() + first, x.n_rows, 1)});
    });
    expect_right(draw_matrix(n), 0, 0, [&](auto& d, MatView x, std::uint32_t first) {
      d.ops().add_scaled(
          d, {.x = x, .y = {y.data() + first * (n + 4), x.n_rows, n, n + 4}, .alpha = 0.3f});
    });
    for (const float cap : {0.0f, 5.0f}) {
      expect_right(draw_matrix(n, 9.0f), 6, 0, [&](auto& d, MatView x, auto) {
        d.ops().scale(d, {.x = x, .alpha = 1.7f, .softcap = cap});
      });
    }
    const std::vector<std::uint32_t> rows{5, 0, 5, 36};
    auto x = draw_matrix(n);
    std::vector<float> out(4 * n);
    const auto device = make();
    device->ops().gather_rows(
        *device,
        {.x = mat_view(x.data(), kRows, n), .rows = rows, .out = mat_view(out.data(), 4, n)});
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(std::memcmp(&out[i * n], &x[rows[i] * n], n * sizeof(float)), 0);
  }
}

struct Routed {
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
};
Routed route(ops::Device& device, ops::MoeRouteArgs a, std::vector<float> logits) {
  const auto n = static_cast<std::uint32_t>(logits.size() / a.logits.n_cols);
  Routed out{std::vector<std::uint32_t>(n * a.top_k), std::vector<float>(n * a.top_k)};
  a.logits = mat_view(logits.data(), n, a.logits.n_cols);
  a.experts = out.experts, a.weights = out.weights;
  device.ops().moe_route(device, a);
  return out;
}

ops::MoeRouteArgs router(std::uint32_t n_experts, std::uint32_t top_k, ops::RouterScore score) {
  ops::MoeRouteArgs a{};
  a.logits.n_cols = n_experts, a.top_k = top_k, a.score = score;
  return a;
}

TEST(CudaMoeRoute, ChoosesAsTheOracleDoes) {
  KVASIR_NEEDS_CUDA();
  std::mt19937 rng(3);
  const auto bias = random_floats(256, rng, 0.1f), scales = random_floats(256, rng);
  ops::MoeRouteArgs kinds[] = {
      router(8, 2, ops::RouterScore::softmax), router(64, 6, ops::RouterScore::softmax),
      router(256, 8, ops::RouterScore::sigmoid), router(32, 4, ops::RouterScore::softmax_chosen)};
  kinds[1].renormalize = true, kinds[1].scale = 2.5f;
  kinds[2].selection_bias = bias.data(), kinds[2].n_groups = 8, kinds[2].topk_groups = 4;
  kinds[2].renormalize = true;
  kinds[3].expert_scales = scales.data();
  for (const ops::MoeRouteArgs& a : kinds) {
    const auto logits = random_floats(std::size_t{50} * a.logits.n_cols, rng, 2.0f);
    const Routed got = route(*make(), a, logits), expected = route(*make_oracle(), a, logits);
    EXPECT_EQ(got.experts, expected.experts);
    EXPECT_LE(worst_ulps(got.weights, expected.weights, 0), 40);
  }
}

TEST(CudaMoeRoute, TiesGoToTheLowerExpertAndNaNsComeLast) {
  KVASIR_NEEDS_CUDA();
  const float nan = std::nanf("");
  const ops::MoeRouteArgs a = router(6, 3, ops::RouterScore::softmax_chosen);
  EXPECT_EQ(route(*make(), a, {1, 2, 2, 2, 2, 1}).experts, (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(route(*make(), a, {nan, 0, nan, -5, nan, 1}).experts,
            (std::vector<std::uint32_t>{1, 3, 5}));
  EXPECT_EQ(route(*make(), a, {nan, nan, nan, nan, nan, 1}).experts,
            (std::vector<std::uint32_t>{0, 1, 5}));
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
