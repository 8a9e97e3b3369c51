// OpTable: the whole interface of a backend: one function pointer an operation. Each op's header
// says what it means and the shapes; backends are tested against backend/ref. All are called from
// one thread, on views that are already valid. Matrices, constants, KV planes, routing (experts,
// weights) and selected positions are in the device's memory; token ids, positions, rows and block
// tables in the host's.
#pragma once

#include "ops/attention.h"
#include "ops/causal_conv.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/fused.h"
#include "ops/gated_delta.h"
#include "ops/head_linear.h"
#include "ops/index_select.h"
#include "ops/l2_norm.h"
#include "ops/latent_attention.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/pick.h"
#include "ops/rope.h"

namespace kvasir::ops {

template <class Args>
using Op = void (*)(Device&, const Args&) noexcept;

struct OpTable {
  Op<EmbedArgs> embed = nullptr;
  Op<RmsNormArgs> rms_norm = nullptr;
  Op<LayerNormArgs> layer_norm = nullptr;
  Op<LinearArgs> linear = nullptr;
  Op<RopeArgs> rope = nullptr;
  Op<KvAppendArgs> kv_append = nullptr;
  Op<KvConvertArgs> kv_convert = nullptr;
  Op<AttentionArgs> attention = nullptr;
  Op<ActMulArgs> act_mul = nullptr;
  Op<GateRowsArgs> gate_rows = nullptr;
  Op<AddScaledArgs> add_scaled = nullptr;
  Op<ScaleArgs> scale = nullptr;
  Op<GatherRowsArgs> gather_rows = nullptr;
  Op<L2NormArgs> l2_norm = nullptr;
  Op<CausalConvArgs> causal_conv = nullptr;
  Op<DeltaGatesArgs> delta_gates = nullptr;
  Op<GatedDeltaArgs> gated_delta = nullptr;
  Op<LatentAppendArgs> latent_append = nullptr;
  Op<LatentAttentionArgs> latent_attention = nullptr;
  Op<IndexSelectArgs> index_select = nullptr;
  Op<HeadLinearArgs> head_linear = head_linear_composed;
  Op<MoeRouteArgs> moe_route = nullptr;
  Op<MoeExpertsArgs> moe_experts = moe_experts_composed;
  Op<LinearGroupArgs> linear_group = linear_group_composed;
  Op<GatedLinearArgs> gated_linear = gated_linear_composed;
  Op<GatedMlpArgs> gated_mlp = gated_mlp_composed;
  Op<AddNormArgs> add_norm = add_norm_composed;
  Op<QueryKeyArgs> query_key = query_key_composed;
  Op<PreparedAttentionArgs> prepared_attention = prepared_attention_composed;
  Op<PickArgs> pick = nullptr;
};

}  // namespace kvasir::ops
