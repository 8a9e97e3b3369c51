// The KV list: the layers of a model that own state, in order (spec KV). Borrowing layers are not
// in it. An entry is of one kind: keys and values of attention, a latent row for all heads, or the
// state of a recurrence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvasir {

struct LatentSpec {  // KV-40: a token is one row of rank + rope_dim
  std::uint32_t rank = 0;
  std::uint32_t rope_dim = 0;
  std::uint32_t index_dim = 0;  // 0: no sparse index
  friend bool operator==(const LatentSpec&, const LatentSpec&) = default;
};

struct RecurrentSpec {            // KV-39: a row is one state, however long it is
  std::uint32_t conv_kernel = 0;  // the tail is its last conv_kernel - 1 inputs
  std::uint32_t n_channels = 0;
  std::uint32_t n_value_heads = 0;  // 0: a tail alone
  std::uint32_t value_dim = 0;
  std::uint32_t key_dim = 0;
  friend bool operator==(const RecurrentSpec&, const RecurrentSpec&) = default;
};

struct KvLayerSpec {
  std::uint32_t n_kv_heads = 0;  // of attention
  std::uint32_t head_dim = 0;
  std::uint32_t window = 0;  // 0: full attention (paged); > 0: windowed, q − j < window (KV-31)
  LatentSpec latent{};
  RecurrentSpec recurrent{};

  // Numbers that one token leaves behind.
  std::size_t token_elements() const noexcept {
    return std::size_t{2} * n_kv_heads * head_dim + latent.rank + latent.rope_dim +
           latent.index_dim;
  }
  bool is_latent() const noexcept { return latent.rank > 0; }
  bool is_recurrent() const noexcept { return recurrent.conv_kernel > 0; }
  bool is_attention() const noexcept { return !is_latent() && !is_recurrent(); }
  friend bool operator==(const KvLayerSpec&, const KvLayerSpec&) = default;
};

using KvList = std::vector<KvLayerSpec>;

}  // namespace kvasir
