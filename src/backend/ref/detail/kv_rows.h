// Reading rows of the KV state, exact or encoded.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/kv_view.h"

namespace kvasir::backend::ref {

using codec::KvSide;

inline KvEncodedSide side_of(const KvLayerView& kv, KvSide side, bool is_encoded) noexcept {
  return side == KvSide::keys ? kv.k_side(is_encoded) : kv.v_side(is_encoded);
}
inline codec::KvRow row_at(const KvLayerView& kv,
                           const KvEncodedSide& side,
                           const BlockId* blocks,
                           std::uint32_t head,
                           std::uint32_t position) noexcept {
  return side.row(
      kv.row_index(blocks[position / kv.block_tokens], head, position % kv.block_tokens));
}

// Rows [begin, end) of one head, as products take them (codec::unpack_row).
struct UnpackedRows {
  UnpackedRows(const KvLayerView& kv,
               const KvRowView& row,
               KvSide side,
               std::uint32_t head,
               std::uint32_t begin,
               std::uint32_t end);
  const float* row_codes(std::uint32_t position) const noexcept {
    return &codes[std::size_t{position - first} * dim];
  }
  float scale(std::uint32_t position, std::size_t g) const noexcept {
    return scales[std::size_t{position - first} * n_groups + g];
  }
  float offset(std::uint32_t position, std::size_t g) const noexcept {
    return offsets[std::size_t{position - first} * n_groups + g];
  }

  std::uint32_t first, dim, group, n_groups;
  bool is_exact, has_offsets, is_rotated;
  std::vector<float> codes, scales, offsets;
};

}  // namespace kvasir::backend::ref
