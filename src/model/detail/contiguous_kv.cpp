#include "model/detail/contiguous_kv.h"

#include "base/check.h"

namespace kvasir::model {

Result<ContiguousKv> ContiguousKv::make(ops::Device& device,
                                        const KvList& list,
                                        const ContiguousKvShape& shape) {
  ContiguousKv out;
  const std::uint32_t n_blocks = (shape.max_tokens + shape.block_tokens - 1) / shape.block_tokens;
  out.lengths_.assign(shape.n_rows, 0);
  out.n_new_.assign(shape.n_rows, 0);
  out.blocks_.resize(shape.n_rows);
  for (std::uint32_t row = 0; row < shape.n_rows; ++row) {
    for (std::uint32_t b = 0; b < n_blocks; ++b) out.blocks_[row].push_back({row * n_blocks + b});
  }
  for (const KvLayerSpec& spec : list) {
    const std::size_t tokens = std::size_t{shape.n_rows} * n_blocks * shape.block_tokens;
    const std::size_t plane_bytes = tokens * spec.n_kv_heads * spec.head_dim * size_of(shape.type);
    KVASIR_TRY(Buffer k, device.allocate(plane_bytes));
    KVASIR_TRY(Buffer v, device.allocate(plane_bytes));
    out.layers_.push_back({.k = k.data(),
                           .v = v.data(),
                           .type = shape.type,
                           .n_kv_heads = spec.n_kv_heads,
                           .head_dim = spec.head_dim,
                           .block_tokens = shape.block_tokens,
                           .window = spec.window,
                           .rows = {},
                           .k_encoded = {},
                           .v_encoded = {}});
    out.planes_.push_back(std::move(k));
    out.planes_.push_back(std::move(v));
  }
  return out;
}

std::span<const KvLayerView> ContiguousKv::begin(std::span<const std::uint32_t> n_new) {
  KVASIR_CHECK(n_new.size() == lengths_.size()) << "one count a row";
  rows_.clear();
  std::uint32_t first_token = 0;
  for (std::size_t row = 0; row < n_new.size(); ++row) {
    n_new_[row] = n_new[row];
    if (n_new[row] == 0) continue;
    KVASIR_CHECK(std::size_t{lengths_[row]} + n_new[row] <=
                 blocks_[row].size() * layers_[0].block_tokens)
        << "row " << row << " is full";
    rows_.push_back({.blocks = blocks_[row].data(),
                     .first_position = 0,
                     .length = lengths_[row],
                     .n_new = n_new[row],
                     .first_token = first_token});
    first_token += n_new[row];
  }
  for (KvLayerView& layer : layers_) layer.rows = rows_;
  return layers_;
}

void ContiguousKv::commit() noexcept {
  for (std::size_t row = 0; row < lengths_.size(); ++row) lengths_[row] += n_new_[row];
}

}  // namespace kvasir::model
