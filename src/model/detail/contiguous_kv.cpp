#include "model/detail/contiguous_kv.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir::model {

Result<ContiguousKv> ContiguousKv::make(ops::Device& device,
                                        const KvList& list,
                                        const ContiguousKvShape& shape) {
  ContiguousKv out;
  out.shape_ = shape;
  const std::uint32_t n_blocks = (shape.max_tokens + shape.block_tokens - 1) / shape.block_tokens;
  out.lengths_.assign(shape.n_rows, 0);
  out.n_new_.assign(shape.n_rows, 0);
  out.blocks_.resize(shape.n_rows);
  for (std::uint32_t row = 0; row < shape.n_rows; ++row) {
    for (std::uint32_t b = 0; b < n_blocks; ++b) out.blocks_[row].push_back({row * n_blocks + b});
  }
  for (const KvLayerSpec& spec : list) {
    out.attention_.emplace_back();
    out.latent_.emplace_back();
    out.recurrent_.emplace_back();
    out.states_.emplace_back();
    if (spec.is_attention()) {
      KVASIR_TRY_DO(out.add_attention(device, spec));
    } else if (spec.is_latent()) {
      KVASIR_TRY_DO(out.add_latent(device, spec.latent));
    } else {
      KVASIR_TRY_DO(out.add_recurrent(device, spec.recurrent));
    }
  }
  out.steps_.resize(list.size());
  return out;
}

// A plane of the blocks of all rows.
Result<std::byte*> ContiguousKv::allocate(ops::Device& device, std::size_t row_bytes) {
  const std::size_t n_tokens = lengths_.size() * blocks_[0].size() * shape_.block_tokens;
  KVASIR_TRY(Buffer plane, device.allocate(n_tokens * row_bytes));
  planes_.push_back(std::move(plane));
  return planes_.back().data();
}

Status ContiguousKv::add_attention(ops::Device& device, const KvLayerSpec& spec) {
  const std::size_t row_bytes = std::size_t{spec.n_kv_heads} * spec.head_dim * size_of(shape_.type);
  KvLayerView& view = attention_.back();
  KVASIR_TRY(view.k, allocate(device, row_bytes));
  KVASIR_TRY(view.v, allocate(device, row_bytes));
  view.type = shape_.type;
  view.n_kv_heads = spec.n_kv_heads;
  view.head_dim = spec.head_dim;
  view.block_tokens = shape_.block_tokens;
  view.window = spec.window;
  return {};
}

Status ContiguousKv::add_latent(ops::Device& device, const LatentSpec& spec) {
  LatentLayerView& view = latent_.back();
  view.type = shape_.type;
  view.rank = spec.rank;
  view.rope_dim = spec.rope_dim;
  view.index_dim = spec.index_dim;
  view.block_tokens = shape_.block_tokens;
  KVASIR_TRY(view.latent, allocate(device, view.dim() * size_of(shape_.type)));
  if (spec.index_dim > 0) {
    KVASIR_TRY(view.index, allocate(device, spec.index_dim * size_of(shape_.type)));
  }
  return {};
}

Status ContiguousKv::add_recurrent(ops::Device& device, const RecurrentSpec& spec) {
  RecurrentLayerView& view = recurrent_.back();
  view.conv_type = shape_.type;
  view.conv_kernel = spec.conv_kernel;
  view.n_channels = spec.n_channels;
  view.n_value_heads = spec.n_value_heads;
  view.value_dim = spec.value_dim;
  view.key_dim = spec.key_dim;
  const std::size_t n_rows = lengths_.size();
  KVASIR_TRY(Buffer conv, device.allocate(n_rows * view.conv_bytes()));
  KVASIR_TRY(Buffer delta, device.allocate(n_rows * view.delta_bytes()));  // may be of no bytes
  for (std::size_t row = 0; row < n_rows; ++row) {
    RecurrentRowView& state = states_.back().emplace_back();
    state.conv_to = conv.data() + row * view.conv_bytes();
    state.delta_to = reinterpret_cast<float*>(delta.data() + row * view.delta_bytes());
  }
  planes_.push_back(std::move(conv));
  planes_.push_back(std::move(delta));
  return {};
}

KvViews ContiguousKv::begin(std::span<const std::uint32_t> n_new) {
  KVASIR_CHECK(n_new.size() == lengths_.size()) << "one count a row";
  rows_.clear();
  for (auto& rows : steps_) rows.clear();
  std::uint32_t first_token = 0;
  for (std::size_t row = 0; row < n_new.size(); ++row) {
    n_new_[row] = n_new[row];
    if (n_new[row] == 0) continue;
    KVASIR_CHECK(std::size_t{lengths_[row]} + n_new[row] <=
                 blocks_[row].size() * shape_.block_tokens)
        << "row " << row << " is full";
    rows_.push_back({.blocks = blocks_[row].data(),
                     .first_position = 0,
                     .length = lengths_[row],
                     .n_new = n_new[row],
                     .first_token = first_token});
    for (std::size_t layer = 0; layer < steps_.size(); ++layer) {
      if (states_[layer].empty()) continue;
      RecurrentRowView& step = steps_[layer].emplace_back(states_[layer][row]);
      step.conv_from = lengths_[row] > 0 ? step.conv_to : nullptr;
      step.delta_from = lengths_[row] > 0 ? step.delta_to : nullptr;
      step.n_new = n_new[row];
      step.first_token = first_token;
    }
    first_token += n_new[row];
  }
  for (std::size_t layer = 0; layer < steps_.size(); ++layer) {
    attention_[layer].rows = rows_;
    latent_[layer].rows = rows_;
    recurrent_[layer].rows = steps_[layer];
  }
  return {attention_, latent_, recurrent_};
}

void ContiguousKv::commit() noexcept { commit(n_new_); }

void ContiguousKv::commit(std::span<const std::uint32_t> keep) noexcept {
  for (std::size_t row = 0; row < lengths_.size(); ++row)
    lengths_[row] += std::min(keep[row], n_new_[row]);
}

}  // namespace kvasir::model
