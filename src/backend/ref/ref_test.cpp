// The oracle against formulas small enough to check by hand, and the mirror's roundings.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/ref/ref_device.h"
#include "base/half.h"
#include "ops/op_table.h"

namespace kvasir::backend::ref {
namespace {

codec::WeightMatrix f32_matrix(const std::vector<float>& w,
                               std::uint32_t n_out,
                               std::uint32_t n_in) {
  return {.type = *codec::find_weight_type("f32"),
          .n_out = n_out,
          .n_in = n_in,
          .planes = {.codes = reinterpret_cast<const std::byte*>(w.data())},
          .codes_stride = n_in * sizeof(float)};
}

std::vector<float> product(ops::Device& device,
                           const codec::WeightMatrix& w,
                           std::vector<float> x,
                           bool exact) {
  const auto packed = *device.pack(w, {.exact_f32 = exact});
  std::vector<float> out(w.n_out);
  device.ops().linear(device, {.x = mat_view(x.data(), 1, w.n_in),
                               .weight = packed.get(),
                               .bias = nullptr,
                               .out = mat_view(out.data(), 1, w.n_out)});
  return out;
}

TEST(Oracle, SumsInDouble) {
  const std::vector<float> w{1e8f, 1.0f, -1e8f};
  const auto device = make_ref_device(RefMode::oracle);

  EXPECT_EQ(product(*device, f32_matrix(w, 1, 3), {1, 1, 1}, false)[0], 1.0f);
}

TEST(Mirror, RoundsOperandsToBf16UnlessExact) {
  const std::vector<float> w{
      1.00390625f};  // 1 + 2^-8: halfway between two bf16, goes to the even 1
  const auto mirror = make_ref_device(RefMode::mirror);

  EXPECT_EQ(product(*mirror, f32_matrix(w, 1, 1), {1.00390625f}, false)[0], 1.0f);
  EXPECT_EQ(product(*mirror, f32_matrix(w, 1, 1), {1.00390625f}, true)[0],
            1.00390625f * 1.00390625f);
}

TEST(Mirror, AddsEvenAndOddChainsOfEachStep) {
  std::vector<float> w(64, 0.0f), x(64, 1.0f);
  w[0] = 0x1p24f, w[1] = 1.0f, w[2] = 1.0f, w[3] = 1.0f;  // even: 2^24 + 1 → 2^24; odd: 2
  const auto mirror = make_ref_device(RefMode::mirror);

  EXPECT_EQ(product(*mirror, f32_matrix(w, 1, 64), x, false)[0], 0x1p24f + 2.0f);
}

struct OneHead {
  std::vector<float> k, v;  // [8, 8]
  BlockId block{0};
  KvRowView row;
  KvLayerView view(std::uint32_t window) {
    return {reinterpret_cast<std::byte*>(k.data()),
            reinterpret_cast<std::byte*>(v.data()),
            DType::f32,
            1,
            8,
            8,
            window,
            {&row, 1}};
  }
};

TEST(Attention, EqualKeysAverageTheVisibleValues) {
  for (const auto mode : {RefMode::oracle, RefMode::mirror}) {
    const auto device = make_ref_device(mode);
    OneHead kv{std::vector<float>(64, 0.0f), std::vector<float>(64, 0.0f), {}, {}};
    kv.row = {&kv.block, 0, 0, 4, 0};
    std::vector<float> keys(32, 0.0f), values(32), q(32, 1.0f), out(32);
    for (std::size_t i = 0; i < 32; ++i) values[i] = static_cast<float>(i / 8);
    for (const std::uint32_t window : {0u, 2u}) {
      device->ops().kv_append(*device, {.k = mat_view(keys.data(), 4, 8),
                                        .v = mat_view(values.data(), 4, 8),
                                        .kv = kv.view(window)});
      device->ops().attention(*device, {.q = mat_view(q.data(), 4, 8),
                                        .kv = kv.view(window),
                                        .n_heads = 1,
                                        .out = mat_view(out.data(), 4, 8)});
      EXPECT_FLOAT_EQ(out[0], 0.0f);
      EXPECT_FLOAT_EQ(out[8], 0.5f);
      EXPECT_FLOAT_EQ(out[24], window == 0 ? 1.5f : 2.5f);  // keys 0..3 or 2..3
    }
  }
}

TEST(Attention, ASinkTakesItsShare) {
  const auto device = make_ref_device(RefMode::oracle);
  OneHead kv{std::vector<float>(64, 0.0f), std::vector<float>(64, 3.0f), {}, {}};
  kv.row = {&kv.block, 0, 1, 1, 0};
  std::vector<float> q(8, 1.0f), out(8);
  const float sink = 0.0f;

  device->ops().attention(*device, {.q = mat_view(q.data(), 1, 8),
                                    .kv = kv.view(0),
                                    .n_heads = 1,
                                    .sinks = &sink,
                                    .out = mat_view(out.data(), 1, 8)});

  EXPECT_FLOAT_EQ(out[0], 2.0f);  // two keys and the sink, a third each
}

TEST(RmsNorm, DividesByTheRootOfTheMean) {
  const auto device = make_ref_device(RefMode::oracle);
  std::vector<float> x{3, 4};
  const std::vector<float> weight{1, 2};

  device->ops().rms_norm(*device, {.x = mat_view(x.data(), 1, 2),
                                   .weight = weight.data(),
                                   .group = 2,
                                   .eps = 0,
                                   .out = mat_view(x.data(), 1, 2)});

  EXPECT_FLOAT_EQ(x[0], 3 / std::sqrt(12.5f));
  EXPECT_FLOAT_EQ(x[1], 8 / std::sqrt(12.5f));
}

TEST(Rope, TurnsPairsInBothPairings) {
  const auto device = make_ref_device(RefMode::oracle);
  const std::vector<float> cos{1, 1, 0, 1},
      sin{0, 0, 1, 0};  // position 1 turns pair 0 by a right angle
  const std::vector<std::uint32_t> positions{1};
  for (const bool interleaved : {false, true}) {
    std::vector<float> x{1, 2, 3, 4, 5};
    device->ops().rope(*device, {.x = mat_view(x.data(), 1, 5),
                                 .head_dim = 5,
                                 .n_pairs = 2,
                                 .interleaved = interleaved,
                                 .positions = positions,
                                 .cos = cos.data(),
                                 .sin = sin.data()});
    EXPECT_EQ(x, interleaved ? (std::vector<float>{-2, 1, 3, 4, 5})
                             : (std::vector<float>{-3, 2, 1, 4, 5}));
  }
}

TEST(MoeRoute, LimitsGroupsByTheSumOfTheirTwoBest) {
  const auto device = make_ref_device(RefMode::oracle);
  const std::vector<float> logits{5, -9, 3, 3, 0, 0, -9, -9};  // sigmoid sums: 0.993, 1.905, 1.0, 0
  std::vector<std::uint32_t> experts(2);
  std::vector<float> weights(2);

  device->ops().moe_route(*device, {.logits = {logits.data(), 1, 8, 8},
                                    .score = ops::RouterScore::sigmoid,
                                    .top_k = 2,
                                    .n_groups = 4,
                                    .topk_groups = 1,
                                    .renormalize = true,
                                    .experts = experts,
                                    .weights = weights});

  EXPECT_EQ(experts, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_FLOAT_EQ(weights[0], 0.5f);
}

}  // namespace
}  // namespace kvasir::backend::ref
