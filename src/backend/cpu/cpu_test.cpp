// Norms, rotary positions, activations, routing, and the device itself, equal to ref:mirror and
// close to the oracle.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/limits.h"
#include "backend/cpu/testing/weights.h"

namespace kvasir::backend::cpu::testing {
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

// f(device, matrix [kRows, n_cols]) in place on every instruction set, the mirror and the oracle.
template <class F>
void expect_right(std::vector<float> x, double max_ulps, double scale, F&& f) {
  const auto n_cols = static_cast<std::uint32_t>(x.size() / kRows);
  auto mirrored = x, exact = x;
  const auto mirror = make_mirror(), oracle = make_oracle();
  f(*mirror, mat_view(mirrored.data(), kRows, n_cols));
  f(*oracle, mat_view(exact.data(), kRows, n_cols));
  for (const auto& [name, device] : every_device(2)) {
    auto got = x;
    f(*device, mat_view(got.data(), kRows, n_cols));
    EXPECT_TRUE(same_bits(got, mirrored)) << name << " differs from the mirror";
  }
  x = mirrored;
  EXPECT_LE(worst_ulps(x, exact, scale), max_ulps);
}

std::vector<float> draw_matrix(std::uint32_t n_cols, float deviation = 1.0f) {
  std::mt19937 rng(n_cols);
  return random_floats(std::size_t{kRows} * n_cols, rng, deviation);
}

TEST(RmsNorm, IsRightForRowsAndHeads) {
  for (const auto& [n_cols, group] :
       {std::pair{576u, 576u}, {2000u, 2000u}, {192u, 64u}, {240u, 80u}, {24u, 8u}, {5u, 5u}}) {
    const auto weight = draw_matrix(group);
    for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
      expect_right(draw_matrix(n_cols), 8, 0, [&, g = group](ops::Device& d, MatView x) {
        d.ops().rms_norm(d, {.x = x, .weight = w, .group = g, .eps = 1e-5f, .out = x});
      });
    }
  }
}

TEST(LayerNorm, IsRightWithAndWithoutBias_MOD1) {
  for (const std::uint32_t n_cols : {576u, 2000u, 64u, 80u, 5u, 1u}) {
    const auto weight = draw_matrix(n_cols), bias = draw_matrix(n_cols, 0.3f);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      expect_right(draw_matrix(n_cols), 16, 1, [&](ops::Device& d, MatView x) {
        for (float* v = x.data; v < x.row(1); ++v) *v += 3.0f;  // a mean far from zero
        d.ops().layer_norm(d, {.x = x, .weight = weight.data(), .bias = b, .eps = 1e-5f, .out = x});
      });
    }
  }
}

TEST(Rope, IsRightInBothPairings) {
  for (const auto& [dim, n_pairs] : {std::pair{64u, 32u}, {80u, 16u}, {8u, 4u}, {96u, 40u}}) {
    std::vector<float> cos(std::size_t{100} * n_pairs), sin(cos.size());
    for (std::size_t i = 0; i < cos.size(); ++i)
      cos[i] = std::cos(static_cast<float>(i)), sin[i] = std::sin(static_cast<float>(i));
    std::vector<std::uint32_t> positions(kRows);
    std::iota(positions.begin(), positions.end(), 50u);
    for (const bool interleaved : {false, true}) {
      expect_right(draw_matrix(3 * dim), 4, 1,
                   [&, d = dim, p = n_pairs](ops::Device& device, MatView x) {
                     device.ops().rope(device, {.x = x,
                                                .head_dim = d,
                                                .n_pairs = p,
                                                .interleaved = interleaved,
                                                .positions = positions,
                                                .cos = cos.data(),
                                                .sin = sin.data()});
                   });
    }
  }
}

TEST(ActMul, IsRight) {
  const auto up = draw_matrix(1000);
  for (const auto activation :
       {ops::Activation::silu, ops::Activation::gelu, ops::Activation::gelu_tanh,
        ops::Activation::sigmoid, ops::Activation::identity}) {
    for (const float deviation : {0.5f, 4.0f, 60.0f}) {
      expect_right(draw_matrix(1000, deviation), 32, 0.05, [&](ops::Device& d, MatView x) {
        d.ops().act_mul(
            d,
            {.gate = x, .up = {up.data(), kRows, 1000, 1000}, .activation = activation, .out = x});
      });
    }
  }
}

TEST(ActMul, ClampsBothInputsOfASwiglu_MOD34) {
  const auto up = draw_matrix(1000, 6.0f);
  for (const float deviation : {0.5f, 8.0f, 200.0f}) {
    expect_right(draw_matrix(1000, deviation), 64, 0.1, [&](ops::Device& d, MatView x) {
      d.ops().act_mul(d, {.gate = x,
                          .up = {up.data(), kRows, 1000, 1000},
                          .activation = ops::Activation::clamped_swiglu,
                          .limit = 7.0f,
                          .out = x});
    });
  }
}

TEST(ActMul, ClampsLetANaNThrough) {
  const float nan = std::nanf("");
  for (const auto& device : {make(), make_mirror(), make_oracle()}) {
    std::vector<float> gate{nan, 1.0f, 2.0f}, up{1.0f, nan, 0.5f};
    device->ops().act_mul(*device, {.gate = {gate.data(), 1, 3, 3},
                                    .up = {up.data(), 1, 3, 3},
                                    .activation = ops::Activation::clamped_swiglu,
                                    .limit = 7.0f,
                                    .out = mat_view(gate.data(), 1, 3)});
    EXPECT_TRUE(std::isnan(gate[0]) && std::isnan(gate[1]) && std::isfinite(gate[2]));
  }
}

TEST(GateRows, MultipliesARowByTheSigmoidOfItsGate) {
  const auto gate = draw_matrix(1, 3.0f);
  expect_right(draw_matrix(333), 8, 0, [&](ops::Device& d, MatView x) {
    d.ops().gate_rows(d, {.x = x, .gate = {gate.data(), kRows, 1, 1}});
  });
}

TEST(AddScaled, RoundsTheProductThenTheSum) {
  const auto y = draw_matrix(333);
  expect_right(draw_matrix(333), 0, 0, [&](ops::Device& d, MatView x) {
    d.ops().add_scaled(d, {.x = x, .y = {y.data(), kRows, 333, 333}, .alpha = 0.3f});
  });
}

TEST(Scale, CapsSoftly) {
  for (const float softcap : {0.0f, 30.0f}) {
    expect_right(draw_matrix(777, 40.0f), softcap > 0 ? 8 : 0, 0, [&](ops::Device& d, MatView x) {
      d.ops().scale(d, {.x = x, .alpha = 0.7f, .softcap = softcap});
    });
  }
}

TEST(GatherRows, CopiesRows) {
  const auto x = draw_matrix(50);
  const std::vector<std::uint32_t> rows{3, 36, 3};
  std::vector<float> out(150);
  const auto cpu = make();

  cpu->ops().gather_rows(
      *cpu, {.x = {x.data(), kRows, 50, 50}, .rows = rows, .out = mat_view(out.data(), 3, 50)});

  for (std::size_t i = 0; i < 150; ++i) EXPECT_EQ(out[i], x[rows[i / 50] * 50 + i % 50]);
}

TEST(MoeRoute, ChoosesAsTheOracleDoes) {
  std::mt19937 rng(4);
  const auto logits = random_floats(std::size_t{kRows} * 64, rng),
             bias = random_floats(64, rng, 0.3f);
  const auto cpu = make(), oracle = make_oracle();
  for (const auto score : {ops::RouterScore::softmax, ops::RouterScore::sigmoid}) {
    for (const std::uint32_t n_groups : {1u, 8u}) {
      std::vector<std::uint32_t> experts[2];
      std::vector<float> weights[2];
      for (int i = 0; i < 2; ++i) {
        ops::Device& d = i == 0 ? *cpu : *oracle;
        experts[i].resize(std::size_t{kRows} * 6);
        weights[i].resize(experts[i].size());
        d.ops().moe_route(
            d, {.logits = {logits.data(), kRows, 64, 64},
                .score = score,
                .selection_bias = score == ops::RouterScore::sigmoid ? bias.data() : nullptr,
                .top_k = 6,
                .n_groups = n_groups,
                .topk_groups = n_groups == 1 ? 1u : 3u,
                .renormalize = true,
                .scale = 2.5f,
                .experts = experts[i],
                .weights = weights[i]});
      }
      EXPECT_EQ(experts[0], experts[1]);
      EXPECT_LE(worst_ulps(weights[0], weights[1], 0), 32);
    }
  }
}

TEST(MoeRoute, TakesTheSoftmaxOfTheChosenAlone_MOD34) {
  const std::vector<float> logits{1.0f, 3.0f, 2.0f, -200.0f, 3.0f, -300.0f};
  const std::vector<float> scales{1.0f, 0.5f, 1.0f, 1.0f, 2.0f, 1.0f};
  for (const auto& device : {make(), make_mirror(), make_oracle()}) {
    std::vector<std::uint32_t> experts(5);
    std::vector<float> weights(5);
    ops::MoeRouteArgs args{.logits = {logits.data(), 1, 6, 6},
                           .score = ops::RouterScore::softmax_chosen,
                           .top_k = 5,
                           .experts = experts,
                           .weights = weights};
    device->ops().moe_route(*device, args);
    EXPECT_EQ(experts, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
    const float sum = 2.0f + std::exp(-1.0f) + std::exp(-2.0f);
    const float want[] = {std::exp(-2.0f) / sum, 1 / sum, std::exp(-1.0f) / sum, 0.0f, 1 / sum};
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(weights[i], want[i], 1e-6f);

    args.expert_scales = scales.data();
    device->ops().moe_route(*device, args);
    EXPECT_NEAR(weights[1], 0.5f / sum, 1e-6f);
    EXPECT_NEAR(weights[4], 2.0f / sum, 1e-6f);
  }
}

TEST(MoeRoute, MirrorsTheChosenSoftmaxToTheBit_MOD34) {
  std::mt19937 rng(5);
  const auto logits = random_floats(std::size_t{kRows} * 32, rng, 3.0f),
             scales = random_floats(32, rng);
  const auto cpu = make(), mirror = make_mirror();
  std::vector<std::uint32_t> experts[2];
  std::vector<float> weights[2];
  for (int i = 0; i < 2; ++i) {
    ops::Device& d = i == 0 ? *cpu : *mirror;
    experts[i].resize(std::size_t{kRows} * 4);
    weights[i].resize(experts[i].size());
    d.ops().moe_route(d, {.logits = {logits.data(), kRows, 32, 32},
                          .score = ops::RouterScore::softmax_chosen,
                          .top_k = 4,
                          .expert_scales = scales.data(),
                          .experts = experts[i],
                          .weights = weights[i]});
  }
  EXPECT_EQ(experts[0], experts[1]);
  EXPECT_TRUE(same_bits(weights[0], weights[1]));
}

TEST(MoeRoute, TiesGoToTheLowerExpertAndNaNsComeLast) {
  const std::vector<float> logits{1.0f, std::nanf(""), 2.0f, 2.0f, 2.0f};
  std::vector<std::uint32_t> experts(2);
  std::vector<float> weights(2);
  for (const auto& device : {make(), make_mirror()}) {
    device->ops().moe_route(*device, {.logits = {logits.data(), 1, 5, 5},
                                      .score = ops::RouterScore::sigmoid,
                                      .top_k = 2,
                                      .experts = experts,
                                      .weights = weights});
    EXPECT_EQ(experts, (std::vector<std::uint32_t>{2, 3}));
  }
}

TEST(CpuDevice, RefusesWhatItCannotDo) {
  EXPECT_FALSE(make_cpu_device({.n_threads = 0}).has_value());
  EXPECT_FALSE(make_cpu_device({.n_threads = 1 << 20}).has_value());
  const auto cpu = make();
  EXPECT_EQ(cpu->allocate(std::size_t{1} << 62).error().code, Errc::capacity);
}

TEST(CpuDevice, MemoryIsZeroedAndAligned) {
  const auto cpu = make();
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{5} << 20}) {
    const auto buffer = *cpu->allocate(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(std::count(buffer.data(), buffer.data() + size, std::byte{0}),
              static_cast<std::ptrdiff_t>(size));
  }
}

// Pages of a buffer that hold memory.
std::size_t resident_bytes(const Buffer& buffer) {
  constexpr std::size_t kPage = 4096;
  std::vector<unsigned char> pages((buffer.size_bytes() + kPage - 1) / kPage);
  if (::mincore(buffer.data(), buffer.size_bytes(), pages.data()) != 0) return 0;
  return kPage * static_cast<std::size_t>(std::count_if(
                     pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(CpuDevice, APoolThatHoldsLittleTakesLittle) {  // FIT-3
  const auto cpu = make();
  constexpr std::size_t kSize = std::size_t{16} << 20, kUsed = std::size_t{64} << 10;
  const auto pool = *cpu->allocate(kSize);

  std::memset(pool.data(), 1, kUsed);

  EXPECT_GE(resident_bytes(pool), kUsed);
  EXPECT_LE(resident_bytes(pool), 2 * kUsed);
  std::memset(pool.data(), 1, kSize);
  EXPECT_EQ(resident_bytes(pool), kSize);
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
