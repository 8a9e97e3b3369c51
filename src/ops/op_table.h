// OpTable: the whole interface of a backend: one function pointer an operation. Each op's header
// says what it means and the shapes; backends are tested against backend/ref. All are called from
// one thread, on views that are already valid.
#pragma once

#include "ops/attention.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace kvasir::ops {

template <class Args>
using Op = void (*)(Device&, const Args&) noexcept;

struct OpTable {
  Op<EmbedArgs> embed = nullptr;
  Op<RmsNormArgs> rms_norm = nullptr;
  Op<LinearArgs> linear = nullptr;
  Op<RopeArgs> rope = nullptr;
  Op<KvAppendArgs> kv_append = nullptr;
  Op<AttentionArgs> attention = nullptr;
  Op<ActMulArgs> act_mul = nullptr;
  Op<AddScaledArgs> add_scaled = nullptr;
  Op<ScaleArgs> scale = nullptr;
  Op<GatherRowsArgs> gather_rows = nullptr;
  Op<MoeRouteArgs> moe_route = nullptr;
  Op<MoeExpertsArgs> moe_experts = moe_experts_composed;
};

}  // namespace kvasir::ops
