// KvViews: the whole KV state that a step sees. Each list has one entry a KV-list entry, in order;
// an entry is meant by the list of its own kind and is empty in the others. Made for one step,
// never outlives it.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/kv_view.h"
#include "tensor/latent_view.h"
#include "tensor/recurrent_view.h"

namespace kvasir {

struct KvViews {
  std::span<const KvLayerView> attention;
  std::span<const LatentLayerView> latent;
  std::span<const RecurrentLayerView> recurrent;
  std::size_t size() const noexcept { return attention.size(); }
};

}  // namespace kvasir
