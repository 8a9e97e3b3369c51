// index_select: which positions each query attends under a sparse index (MOD-36): the top_k of
// those up to its own by score(p) = Σ_h w_h · relu(q_h · k_p), heads in ascending order. The
// model's positive factors d^-½ and n_heads^-½ change no order and are left out. Ties go to the
// lower position, a NaN score is chosen last. A query's selection depends on its row alone.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/latent_view.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct IndexSelectArgs {
  ConstMatView q;        // [n_tokens, n_heads · index_dim], after rope
  ConstMatView weights;  // [n_tokens, n_heads]
  LatentLayerView kv;    // index keys of this step appended
  std::uint32_t n_heads = 0;
  std::uint32_t top_k = 0;
  // out [n_tokens, top_k]: ascending positions, n_selected(position, top_k) of each token; the rest
  // of a token's places is left alone.
  std::span<std::uint32_t> selected;
};

// How many positions a query at an absolute position selects.
constexpr std::uint32_t n_selected(std::uint32_t position, std::uint32_t top_k) noexcept {
  return position < top_k ? position + 1 : top_k;
}

}  // namespace kvasir::ops
