// The operations of the reference backend and the device they share.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/ref/ref_device.h"
#include "ops/op_table.h"

namespace kvasir::backend::ref {

// oracle: `values` alone. mirror: dense weights in `values` (rounded unless exact), quantized ones
// as codes and scales.
struct RefMatrix final : ops::PackedMatrix {
  using PackedMatrix::PackedMatrix;
  std::size_t size_bytes() const noexcept override;

  bool exact_f32 = false;
  bool takes_int8 = false;  // mirror: activations of 8 bits
  int grid = 0;             // mirror: bits of the activations' grid, or none
  int code_shift = 0;       // mirror: products take codes so much lower, and biases higher
  std::uint32_t group = 0;  // 0: dense
  bool has_bias = false;
  std::vector<float> values;          // [n_out, n_in]
  std::vector<std::int16_t> codes;    // [n_out, n_in]
  std::vector<float> scales, biases;  // [n_out, n_in / group]
};

RefMode mode_of(const ops::Device& device) noexcept;
inline const RefMatrix& matrix_of(const ops::PackedMatrix* m) noexcept {
  return static_cast<const RefMatrix&>(*m);
}

void embed(ops::Device&, const ops::EmbedArgs&) noexcept;
void linear(ops::Device&, const ops::LinearArgs&) noexcept;
void rms_norm(ops::Device&, const ops::RmsNormArgs&) noexcept;
void layer_norm(ops::Device&, const ops::LayerNormArgs&) noexcept;
void rope(ops::Device&, const ops::RopeArgs&) noexcept;
void kv_append(ops::Device&, const ops::KvAppendArgs&) noexcept;
void kv_convert(ops::Device&, const ops::KvConvertArgs&) noexcept;
void attention(ops::Device&, const ops::AttentionArgs&) noexcept;
void act_mul(ops::Device&, const ops::ActMulArgs&) noexcept;
void gate_rows(ops::Device&, const ops::GateRowsArgs&) noexcept;
void add_scaled(ops::Device&, const ops::AddScaledArgs&) noexcept;
void scale(ops::Device&, const ops::ScaleArgs&) noexcept;
void gather_rows(ops::Device&, const ops::GatherRowsArgs&) noexcept;
void l2_norm(ops::Device&, const ops::L2NormArgs&) noexcept;
void causal_conv(ops::Device&, const ops::CausalConvArgs&) noexcept;
void delta_gates(ops::Device&, const ops::DeltaGatesArgs&) noexcept;
void gated_delta(ops::Device&, const ops::GatedDeltaArgs&) noexcept;
void latent_append(ops::Device&, const ops::LatentAppendArgs&) noexcept;
void latent_attention(ops::Device&, const ops::LatentAttentionArgs&) noexcept;
void index_select(ops::Device&, const ops::IndexSelectArgs&) noexcept;
void moe_route(ops::Device&, const ops::MoeRouteArgs&) noexcept;
void pick(ops::Device&, const ops::PickArgs&) noexcept;

void mirror_int8_row(const RefMatrix& m, const float* x, float* out);
void mirror_rms_norm(const ops::RmsNormArgs&) noexcept;
void mirror_layer_norm(const ops::LayerNormArgs&) noexcept;
void mirror_rope(const ops::RopeArgs&) noexcept;
void mirror_act_mul(const ops::ActMulArgs&) noexcept;
void mirror_scale(const ops::ScaleArgs&) noexcept;

// One query's place in its row's keys: visible positions are [begin, end).
struct VisibleKeys {
  const KvRowView* row = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
struct UnpackedRows;
// Query head `head` of token `token` in backend/cpu's plan: tiles of 64 keys, bf16 operands when
// the cache's exact type is bf16. k, v: the rows of its key head, from the first visible one on.
void mirror_attend(const ops::AttentionArgs& a,
                   const VisibleKeys& keys,
                   const UnpackedRows& k,
                   const UnpackedRows& v,
                   std::uint32_t token,
                   std::uint32_t head);

}  // namespace kvasir::backend::ref
