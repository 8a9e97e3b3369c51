// One side, keys or values, of a layer's KV state in one form, as codec/kv_codec.h describes rows:
// planes [n_blocks][n_kv_heads][block_tokens][bytes of a row's part].
#pragma once

#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

enum class KvKind : std::uint32_t { exact, affine, turbo_keys, turbo_values };

struct KvSide {
  std::byte *codes, *scales, *offsets;
  std::uint32_t code_bytes, scale_bytes, offset_bytes;  // of a row
  KvKind kind;
  std::uint32_t bits, group;
  Type scale_type;  // of scales and offsets; exact: of elements
  std::uint32_t pad;
};

}  // namespace kvasir::backend::cuda
