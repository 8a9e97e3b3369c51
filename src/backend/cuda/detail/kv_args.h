// KV views as kernels take them.
#pragma once

#include <algorithm>
#include <bit>

#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/device/kv_rows.h"
#include "codec/kv_codec.h"

namespace kvasir::backend::cuda {

inline Type type_of(codec::ScaleType type) noexcept {
  return type == codec::ScaleType::f32   ? Type::f32
         : type == codec::ScaleType::f16 ? Type::f16
                                         : Type::bf16;
}

inline KvKind kind_of(const codec::KvCodec& codec) noexcept {
  return codec.is_exact()                ? KvKind::exact
         : codec::is_rotated(codec)      ? KvKind::turbo_values
         : codec::has_zero_points(codec) ? KvKind::turbo_keys
                                         : KvKind::affine;
}

inline KvSide side_of(const KvEncodedSide& side) noexcept {
  return {.codes = side.planes[0],
          .scales = side.planes[1],
          .offsets = side.planes[2],
          .code_bytes = static_cast<std::uint32_t>(side.row_bytes[0]),
          .scale_bytes = static_cast<std::uint32_t>(side.row_bytes[1]),
          .offset_bytes = static_cast<std::uint32_t>(side.row_bytes[2]),
          .kind = kind_of(side.codec),
          .bits = side.codec.bits,
          .group = codec::group_of(side.codec),
          .scale_type = type_of(side.codec.scale_type),
          .pad = 0};
}

inline KvLayer layer_of(const KvLayerView& kv) noexcept {
  return {.exact = {side_of(kv.k_side(false)), side_of(kv.v_side(false))},
          .encoded = {side_of(kv.k_encoded), side_of(kv.v_encoded)},
          .n_kv_heads = kv.n_kv_heads,
          .head_dim = kv.head_dim,
          .block_tokens = kv.block_tokens,
          .type = type_of(kv.type)};
}

// Launch dimensions that follow a step's rows go by powers of two.
inline std::uint32_t bucket_of(std::uint32_t n) noexcept { return std::bit_ceil(n); }

}  // namespace kvasir::backend::cuda
