// Recurrent and latent layers of the oracle and the mirror against numbers small enough to check by
// hand. backend/cpu's tests run both on whole layers.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/ref/ref_device.h"
#include "ops/op_table.h"

namespace kvasir::backend::ref {
namespace {

MatView row(std::vector<float>& x) {
  return mat_view(x.data(), 1, static_cast<std::uint32_t>(x.size()));
}

// S = [2 4] decays to [1 2]; u = 1·1 + 2·0 = 1; δ = (5 − 1)/2 = 2; S = [3 2]; y = 3·1 + 2·10.
TEST(GatedDelta, TakesInATokenAsMod41Says) {
  for (const auto mode : {RefMode::oracle, RefMode::mirror}) {
    const auto device = make_ref_device(mode);
    std::vector<float> q{1, 10}, k{1, 0}, v{5}, decay{0.5f}, beta{0.5f}, out(1), before{2, 4},
        after(2);
    const RecurrentRowView view{.delta_from = before.data(), .delta_to = after.data(), .n_new = 1};
    device->ops().gated_delta(
        *device, {.q = row(q),
                  .k = row(k),
                  .v = row(v),
                  .decay = row(decay),
                  .beta = row(beta),
                  .state = {.n_value_heads = 1, .value_dim = 1, .key_dim = 2, .rows = {&view, 1}},
                  .out = row(out)});

    EXPECT_EQ(out[0], 23.0f);
    EXPECT_EQ(after, (std::vector<float>{3, 2}));
    EXPECT_EQ(before, (std::vector<float>{2, 4}));
  }
}

TEST(DeltaGates, AreHalfWhereTheyMustBe) {
  for (const auto mode : {RefMode::oracle, RefMode::mirror}) {
    const auto device = make_ref_device(mode);
    std::vector<float> a{-1.0f}, b{0.0f}, decay(1), beta(1);
    const float a_log = 0.0f, dt_bias = 1.0f;  // softplus(0) = ln 2
    device->ops().delta_gates(*device, {.a = row(a),
                                        .b = row(b),
                                        .a_log = &a_log,
                                        .dt_bias = &dt_bias,
                                        .decay = row(decay),
                                        .beta = row(beta)});

    EXPECT_FLOAT_EQ(decay[0], 0.5f);
    EXPECT_EQ(beta[0], 0.5f);
  }
}

// Two tokens of equal rope keys: every latent weighs the same; a selection of one takes it alone.
TEST(LatentAttention, AveragesTheSelectedLatents) {
  for (const auto mode : {RefMode::oracle, RefMode::mirror}) {
    const auto device = make_ref_device(mode);
    std::vector<float> plane(8 * 3), latent{1, 2, 3, 6}, rope{1, 1}, q{0, 0}, q_rope{1}, out(2);
    const BlockId block{0};
    KvRowView tokens{.blocks = &block, .n_new = 2};
    LatentLayerView kv;
    kv.latent = reinterpret_cast<std::byte*>(plane.data()), kv.type = DType::f32;
    kv.rank = 2, kv.rope_dim = 1, kv.block_tokens = 8, kv.rows = {&tokens, 1};
    device->ops().latent_append(*device, {.latent = mat_view(latent.data(), 2, 2),
                                          .rope_key = mat_view(rope.data(), 2, 1),
                                          .kv = kv});
    tokens.length = 1, tokens.n_new = 1;
    const std::vector<std::uint32_t> only{1};
    const auto attend = [&](std::span<const std::uint32_t> selected) {
      device->ops().latent_attention(*device, {.q_latent = row(q),
                                               .q_rope = row(q_rope),
                                               .rope_step = 1,
                                               .kv = kv,
                                               .n_heads = 1,
                                               .selected = selected,
                                               .top_k = 1,
                                               .out = row(out)});
      return out;
    };

    EXPECT_EQ(attend({}), (std::vector<float>{2, 4}));
    EXPECT_EQ(attend(only), (std::vector<float>{3, 6}));
  }
}

}  // namespace
}  // namespace kvasir::backend::ref
