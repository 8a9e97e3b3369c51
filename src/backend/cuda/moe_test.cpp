// Experts on the GPU: the bits of one token and expert at a time, added up in ascending expert id.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/cuda/testing/device_memory.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using ops::testing::random_floats;
using ops::testing::same_bits;
using ops::testing::StoredWeight;

constexpr std::uint32_t kHidden = 128, kFf = 64;

struct Bank {
  Bank(const char* type, std::size_t n_experts, bool exact, bool has_bias, std::mt19937& rng) {
    ops::Device& device = cuda_device();
    const auto pack = [&](std::uint32_t n_out, std::uint32_t n_in) {
      stored.push_back(std::make_unique<StoredWeight>(type, n_out, n_in, rng));
      packed.push_back(*device.pack(stored.back()->view(), {.exact_f32 = exact}));
      return packed.back().get();
    };
    const auto bias = [&](std::uint32_t n) -> const float* {
      if (!has_bias) return nullptr;
      biases.push_back(std::make_unique<Array<float>>(device, random_floats(n, rng)));
      return biases.back()->data();
    };
    for (std::size_t e = 0; e < n_experts; ++e)
      experts.push_back({.gate = pack(kFf, kHidden),
                         .up = pack(kFf, kHidden),
                         .down = pack(kHidden, kFf),
                         .gate_bias = bias(kFf),
                         .up_bias = bias(kFf),
                         .down_bias = bias(kHidden)});
  }
  std::vector<std::unique_ptr<StoredWeight>> stored;
  std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
  std::vector<std::unique_ptr<Array<float>>> biases;
  std::vector<ops::ExpertWeights> experts;
};

struct Routing {
  Routing(std::size_t n_tokens, std::size_t k, std::size_t n_experts, std::mt19937& rng)
      : weights(random_floats(n_tokens * k, rng)) {
    std::vector<std::uint32_t> all(n_experts);
    std::iota(all.begin(), all.end(), 0u);
    for (std::size_t t = 0; t < n_tokens; ++t) {
      std::shuffle(all.begin(), all.end(), rng);
      std::vector<std::uint32_t> chosen(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k));
      std::sort(chosen.begin(), chosen.end());
      experts.insert(experts.end(), chosen.begin(), chosen.end());
    }
  }
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
};

std::vector<float> run_experts(const Bank& bank,
                               const Routing& routing,
                               std::uint32_t top_k,
                               const std::vector<float>& x,
                               bool in_step) {
  ops::Device& device = cuda_device();
  const auto n_tokens = static_cast<std::uint32_t>(x.size() / kHidden);
  const Array<float> in(device, x), weights(device, routing.weights);
  const Array<std::uint32_t> experts(device, routing.experts);
  const Array<float> scratch(device, ops::moe_scratch_floats(n_tokens, top_k, kHidden, kFf));
  const Array<float> out(device, std::vector<float>(x.size(), -1.0f));
  if (in_step) device.begin_step(n_tokens);
  device.ops().moe_experts(device, {.x = {in.data(), n_tokens, kHidden, kHidden},
                                    .experts = experts.span(),
                                    .weights = weights.span(),
                                    .top_k = top_k,
                                    .bank = bank.experts,
                                    .scratch = scratch.span(),
                                    .out = mat_view(out.data(), n_tokens, kHidden)});
  const Status done = in_step ? device.end_step() : Status{};
  EXPECT_TRUE(done.has_value());
  return out.get();
}

// One token and expert at a time, by the device's other ops.
std::vector<float> one_by_one(const Bank& bank,
                              const Routing& routing,
                              std::uint32_t top_k,
                              const std::vector<float>& x) {
  ops::Device& device = cuda_device();
  const Array<float> in(device, x), gate(device, kFf), up(device, kFf), y(device, kHidden);
  std::vector<float> out(x.size(), 0.0f);
  for (std::size_t slot = 0; slot < routing.experts.size(); ++slot) {
    const ops::ExpertWeights& e = bank.experts[routing.experts[slot]];
    const std::size_t token = slot / top_k;
    const ConstMatView row{in.data() + token * kHidden, 1, kHidden, kHidden};
    const MatView g = mat_view(gate.data(), 1, kFf), u = mat_view(up.data(), 1, kFf);
    device.ops().linear(device, {.x = row, .weight = e.gate, .bias = e.gate_bias, .out = g});
    device.ops().linear(device, {.x = row, .weight = e.up, .bias = e.up_bias, .out = u});
    device.ops().act_mul(device, {.gate = g, .up = u, .out = g});
    device.ops().linear(
        device,
        {.x = g, .weight = e.down, .bias = e.down_bias, .out = mat_view(y.data(), 1, kHidden)});
    const auto values = y.get();
    for (std::size_t i = 0; i < kHidden; ++i)
      out[token * kHidden + i] += values[i] * routing.weights[slot];
  }
  return out;
}

class CudaExperts : public ::testing::Test {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  std::mt19937 rng_{29};
};

TEST_F(CudaExperts, AddUpWhatOneTokenAndExpertAtATimeGive) {
  struct Case {
    const char* type;
    bool exact, has_bias;
  };
  for (const Case& c : {Case{"bf16", false, false}, Case{"affine4g32", false, false},
                        Case{"mxfp4", false, true}, Case{"f32", true, true}}) {
    const Bank bank(c.type, 40, c.exact, c.has_bias, rng_);
    for (const std::uint32_t n_tokens : {1u, 3u, 30u, 64u}) {
      const Routing routing(n_tokens, 4, 40, rng_);
      const auto x = random_floats(std::size_t{n_tokens} * kHidden, rng_);

      const auto got = run_experts(bank, routing, 4, x, /*in_step=*/n_tokens % 2 == 1);

      EXPECT_TRUE(same_bits(got, one_by_one(bank, routing, 4, x))) << c.type << " " << n_tokens;
    }
  }
}

TEST_F(CudaExperts, ATokenDoesNotDependOnHowManyThereAre) {
  const Bank bank("affine8g64", 20, false, false, rng_);
  const Routing routing(700, 2, 20, rng_);
  const auto x = random_floats(700 * kHidden, rng_);
  const auto all = run_experts(bank, routing, 2, x, false);
  for (const std::size_t m : {1u, 8u, 64u, 65u, 300u}) {
    const std::size_t first = 350 - m / 2;
    Routing some = routing;
    some.experts.assign(routing.experts.begin() + static_cast<std::ptrdiff_t>(2 * first),
                        routing.experts.begin() + static_cast<std::ptrdiff_t>(2 * (first + m)));
    some.weights.assign(routing.weights.begin() + static_cast<std::ptrdiff_t>(2 * first),
                        routing.weights.begin() + static_cast<std::ptrdiff_t>(2 * (first + m)));
    const auto at = [&](std::size_t row) { return static_cast<std::ptrdiff_t>(row * kHidden); };
    const std::vector<float> rows(x.begin() + at(first), x.begin() + at(first + m));
    const std::vector<float> expected(all.begin() + at(first), all.begin() + at(first + m));

    EXPECT_TRUE(same_bits(run_experts(bank, some, 2, rows, false), expected)) << m;
  }
}

TEST_F(CudaExperts, AnotherChoiceGivesAnotherSum) {
  const Bank bank("bf16", 10, false, false, rng_);
  Routing routing(4, 2, 10, rng_);
  const auto x = random_floats(4 * kHidden, rng_);
  const auto before = run_experts(bank, routing, 2, x, false);
  routing.experts[0] = routing.experts[0] == 0 ? 1 : 0;

  EXPECT_FALSE(same_bits(run_experts(bank, routing, 2, x, false), before));
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
