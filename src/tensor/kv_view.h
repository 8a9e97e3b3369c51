// What kernels see of the KV state: one KvLayerView per KV-list entry, one KvRowView per row of the
// step. Made by kv/ for one step, never outlives it (KV-45). Planes are
// [n_blocks][n_kv_heads][block_tokens][head_dim], so one head's tokens of a block are contiguous.
// A row of the step is read and appended to in exact or in encoded form, never both (KV-20).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "codec/kv_codec.h"
#include "tensor/dtype.h"

namespace kvasir {

struct KvRowView {
  const BlockId* blocks = nullptr;   // blocks[p / block_tokens] holds absolute position p
  std::uint32_t first_position = 0;  // positions below it are released (windowed layers)
  std::uint32_t length = 0;       // committed positions = absolute position of the first new token
  std::uint32_t n_new = 0;        // tokens this step feeds; room for them is reserved
  std::uint32_t first_token = 0;  // index of the first of them in the step's flat token list
  bool is_encoded = false;        // blocks name blocks of the encoded planes
};

// One side (keys or values) of a layer in encoded form: planes [n_blocks][n_kv_heads]
// [block_tokens][row_bytes of the plane].
struct KvEncodedSide {
  codec::KvCodec codec{};
  std::array<std::byte*, codec::kKvRowParts> planes{};
  std::array<std::size_t, codec::kKvRowParts> row_bytes{};

  codec::KvRow row(
      std::size_t index) const noexcept {  // (block · n_kv_heads + head) · block_tokens + slot
    codec::KvRow out;
    for (std::size_t i = 0; i < codec::kKvRowParts; ++i)
      out.planes[i] = planes[i] == nullptr ? nullptr : planes[i] + index * row_bytes[i];
    return out;
  }
};

struct KvLayerView {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType type = DType::bf16;  // f32, bf16 or f16, of both planes
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 0;  // a power of two, 8..512
  std::uint32_t window =
      0;  // 0: full attention; else key j is visible to query q iff q - j < window
  std::span<const KvRowView> rows;
  KvEncodedSide k_encoded{}, v_encoded{};  // codec.kind exact: this layer has no encoded form

  // Index of a row (block, kv_head, slot) in every plane of its form.
  std::size_t row_index(BlockId block, std::uint32_t head, std::uint32_t slot) const noexcept {
    return (std::size_t{block.value} * n_kv_heads + head) * block_tokens + slot;
  }
  // Keys or values in either form, the exact one as a codec of kind exact.
  KvEncodedSide k_side(bool is_encoded) const noexcept {
    return is_encoded ? k_encoded : exact_side(k);
  }
  KvEncodedSide v_side(bool is_encoded) const noexcept {
    return is_encoded ? v_encoded : exact_side(v);
  }
  codec::KvCodec exact_codec() const noexcept {
    return codec::exact_kv(type == DType::f32   ? codec::ScaleType::f32
                           : type == DType::f16 ? codec::ScaleType::f16
                                                : codec::ScaleType::bf16);
  }
  // Byte offset of it in either exact plane.
  std::size_t offset(BlockId block, std::uint32_t head, std::uint32_t slot) const noexcept {
    return row_index(block, head, slot) * head_dim * size_of(type);
  }

 private:
  KvEncodedSide exact_side(std::byte* plane) const noexcept {
    return {exact_codec(), {plane}, {head_dim * size_of(type)}};
  }
};

}  // namespace kvasir
