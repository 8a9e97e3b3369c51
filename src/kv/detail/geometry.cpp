#include "kv/detail/geometry.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "kv/detail/state_views.h"

namespace kvasir::kv {
namespace {

// Bounds that keep every byte count below 2^63; far above any model.
constexpr std::size_t kMaxWidth = std::size_t{1} << 24;
constexpr std::size_t kMaxLayers = std::size_t{1} << 14;

// Layers of one kind: they may share block tables.
struct LayerClass {
  GroupGeometry kind;  // without layers
  std::vector<std::uint32_t> layers;
  std::size_t layers_per_group(const std::vector<PoolGeometry>& pools) const noexcept {
    return pools[kind.pool(kind.is_born_encoded())].layers_per_block;
  }
};

using TokenBytes = std::vector<std::size_t>;

// What is not keys and values is f32 or bf16: a recurrence's inputs have the type of activations.
TokenBytes state_bytes(const RecurrentSpec& spec, DType type) {
  const RecurrentLayerView view = recurrent_view_of(spec, type);
  if (view.delta_bytes() == 0) return {view.conv_bytes()};
  return {view.conv_bytes(), view.delta_bytes()};
}

TokenBytes latent_bytes(const LatentSpec& spec, DType type) {
  TokenBytes out{(std::size_t{spec.rank} + spec.rope_dim) * size_of(type)};
  if (spec.index_dim > 0) out.push_back(spec.index_dim * size_of(type));
  return out;
}

TokenBytes exact_bytes(const KvLayerSpec& layer, DType type) {
  if (layer.is_recurrent()) return state_bytes(layer.recurrent, type);
  if (layer.is_latent()) return latent_bytes(layer.latent, type);
  const std::size_t side = std::size_t{layer.n_kv_heads} * layer.head_dim * size_of(type);
  return {side, side};
}

TokenBytes encoded_bytes(const KvLayerSpec& layer, const KvLayerForm& form) {
  TokenBytes out;
  for (const codec::KvCodec& codec : {form.k, form.v}) {
    for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
      const std::size_t row =
          codec::row_bytes(codec, static_cast<codec::KvRowPart>(part), layer.head_dim);
      if (row > 0) out.push_back(row * layer.n_kv_heads);
    }
  }
  return out;
}

std::uint32_t pool_of(std::vector<PoolGeometry>& pools,
                      TokenBytes token_bytes,
                      std::uint32_t block_tokens) {
  const auto same = [&](const PoolGeometry& pool) {
    return pool.token_bytes == token_bytes && pool.block_tokens == block_tokens;
  };
  const auto found = std::find_if(pools.begin(), pools.end(), same);
  if (found != pools.end()) return static_cast<std::uint32_t>(found - pools.begin());
  pools.push_back({.token_bytes = std::move(token_bytes), .block_tokens = block_tokens});
  return static_cast<std::uint32_t>(pools.size() - 1);
}

void add_layer(std::vector<LayerClass>& classes, const GroupGeometry& kind, std::uint32_t index) {
  const auto same = [&](const LayerClass& c) {
    return c.kind.window == kind.window && c.kind.layout == kind.layout &&
           c.kind.exact_pool == kind.exact_pool && c.kind.encoded_pool == kind.encoded_pool;
  };
  auto found = std::find_if(classes.begin(), classes.end(), same);
  if (found == classes.end()) {
    classes.push_back({kind, {}});
    found = classes.end() - 1;
  }
  found->layers.push_back(index);
}

// Elements of a token, or of a state; kMaxWidth + 1 for whatever is beyond it.
std::size_t width_of(const KvLayerSpec& layer) {
  if (layer.is_latent())
    return std::size_t{layer.latent.rank} + layer.latent.rope_dim + layer.latent.index_dim;
  if (layer.is_attention()) return std::size_t{layer.n_kv_heads} * layer.head_dim;
  const RecurrentSpec& r = layer.recurrent;
  const std::size_t tail = std::size_t{r.conv_kernel - 1} * r.n_channels;
  const std::size_t heads = std::size_t{r.n_value_heads} * r.value_dim;
  return std::max({tail, heads, heads > kMaxWidth ? heads : heads * r.key_dim});
}

Result<GroupGeometry> kind_of(const KvLayerSpec& layer, std::uint32_t index, DType type) {
  const std::string where = "KV layer " + std::to_string(index);
  const std::size_t width = width_of(layer);
  const KvLayoutOps* layout = find_layout(layer);
  if (layout == nullptr) return unsupported(where + " has no layout");
  if (width == 0 || width > kMaxWidth) return invalid(where + " has an unusable width");
  if (layer.is_latent() && type == DType::f16)
    return unsupported(where + " is latent, which is kept in bf16 or f32, not in f16");
  GroupGeometry kind;
  kind.window = layer.window;
  kind.layout = layout;
  return kind;
}

void set_layers_per_block(std::vector<PoolGeometry>& pools,
                          const std::vector<LayerClass>& classes) {
  for (std::uint32_t p = 0; p < pools.size(); ++p) {
    std::size_t divisor = 0;
    for (const LayerClass& c : classes) {
      if (c.kind.exact_pool != p && c.kind.encoded_pool != p) continue;
      divisor = std::gcd(divisor, c.kind.converts() ? 1 : c.layers.size());
    }
    pools[p].layers_per_block = static_cast<std::uint32_t>(divisor);
  }
}

// Groups stand in the order of their pools, so that exact geometries do not depend on how many
// forms there are.
void add_groups(KvGeometry& out, const LayerClass& c) {
  const std::size_t n = c.layers_per_group(out.pools);
  for (std::size_t begin = 0; begin < c.layers.size(); begin += n) {
    const auto first = c.layers.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto group = static_cast<std::uint32_t>(out.groups.size());
    out.groups.push_back(c.kind);
    out.groups.back().layers.assign(first, first + static_cast<std::ptrdiff_t>(n));
    for (const std::uint32_t pool : {c.kind.exact_pool, c.kind.encoded_pool})
      if (pool != kNoPool) ++out.pools[pool].n_groups;
    for (std::uint32_t slot = 0; slot < n; ++slot)
      out.layers[out.groups.back().layers[slot]] = {group, slot};
  }
}

}  // namespace

std::size_t PoolGeometry::block_bytes() const noexcept {
  return layers_per_block * block_tokens *
         std::accumulate(token_bytes.begin(), token_bytes.end(), std::size_t{0});
}

Result<KvGeometry> KvGeometry::make(const KvList& list,
                                    const KvScheme& scheme,
                                    std::uint32_t block_tokens) {
  if (list.size() > kMaxLayers) return invalid("too many KV layers");
  KVASIR_TRY(const std::vector<KvLayerForm> forms, forms_of(scheme, list));
  KvGeometry out;
  out.block_tokens = block_tokens;
  out.transition = scheme.transition();
  out.layers.resize(list.size());
  std::vector<LayerClass> classes;
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    KVASIR_TRY(GroupGeometry kind, kind_of(list[i], i, scheme.type));
    const bool encodes = forms[i].has_encoded();
    if (!encodes || out.transition > 0)
      kind.exact_pool = pool_of(out.pools, exact_bytes(list[i], scheme.type),
                                kind.holds_state() ? 1 : block_tokens);
    if (encodes)
      kind.encoded_pool = pool_of(out.pools, encoded_bytes(list[i], forms[i]), block_tokens);
    add_layer(classes, kind, i);
  }
  set_layers_per_block(out.pools, classes);
  for (std::uint32_t p = 0; p < out.pools.size(); ++p) {
    for (const LayerClass& c : classes)
      if (c.kind.pool(c.kind.is_born_encoded()) == p) add_groups(out, c);
  }
  return out;
}

std::size_t KvGeometry::group_blocks(const GroupGeometry& group,
                                     bool is_encoded,
                                     std::uint64_t n_tokens,
                                     std::uint32_t max_chunk) const noexcept {
  if (group.pool(is_encoded) == kNoPool) return 0;
  if (group.converts() && is_encoded && n_tokens <= transition) return 0;
  const std::uint64_t n =
      group.converts() && !is_encoded ? std::min(n_tokens, transition) : n_tokens;
  return group.layout->projected_blocks(group.window, n, max_chunk, block_tokens);
}

std::size_t KvGeometry::projected_blocks(std::uint32_t pool,
                                         std::uint64_t n_tokens,
                                         std::uint32_t max_chunk,
                                         bool is_converted) const noexcept {
  std::size_t blocks = 0;
  for (const GroupGeometry& group : groups) {
    if (is_converted && group.converts() && group.exact_pool == pool) continue;
    for (const bool is_encoded : {false, true})
      if (group.pool(is_encoded) == pool)
        blocks += group_blocks(group, is_encoded, n_tokens, max_chunk);
  }
  return blocks;
}

std::size_t KvGeometry::projected_bytes(std::uint64_t n_tokens,
                                        std::uint32_t max_chunk) const noexcept {
  std::size_t total = 0;
  for (const GroupGeometry& group : groups) {
    std::size_t largest = 0;
    for (const bool is_encoded : {false, true}) {
      const std::size_t blocks = group_blocks(group, is_encoded, n_tokens, max_chunk);
      if (blocks > 0)
        largest = std::max(largest, blocks * pools[group.pool(is_encoded)].block_bytes());
    }
    total += largest;
  }
  return total;
}

Result<std::vector<std::uint32_t>> KvGeometry::divide(std::size_t budget_bytes,
                                                      std::uint32_t split_tokens,
                                                      std::uint32_t split_chunk) const {
  std::vector<double> demand(pools.size());
  for (std::uint32_t p = 0; p < pools.size(); ++p) {
    const std::size_t blocks = std::max<std::size_t>(
        projected_blocks(p, std::max(split_tokens, 1u), split_chunk), pools[p].n_groups);
    demand[p] = static_cast<double>(blocks) * static_cast<double>(pools[p].block_bytes());
  }
  const double all = std::accumulate(demand.begin(), demand.end(), 0.0);
  std::vector<std::uint32_t> out;
  for (std::uint32_t p = 0; p < pools.size(); ++p) {
    const double share = static_cast<double>(budget_bytes) * (demand[p] / all);
    const std::size_t blocks = static_cast<std::size_t>(share) / pools[p].block_bytes();
    if (blocks < pools[p].n_groups)
      return Error{Errc::capacity, "the kv budget does not hold one block of every layer"};
    out.push_back(static_cast<std::uint32_t>(std::min<std::size_t>(blocks, 0xFFFF'FFFEu)));
  }
  return out;
}

std::size_t KvGeometry::budget_for(std::uint64_t n_tokens,
                                   std::uint32_t max_chunk,
                                   std::uint32_t split_tokens,
                                   std::uint32_t split_chunk) const {
  if (pools.empty()) return 0;  // an encoder keeps nothing
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 4;
  std::vector<std::size_t> needed(pools.size());
  for (std::uint32_t p = 0; p < pools.size(); ++p)
    needed[p] = projected_blocks(p, n_tokens, max_chunk);
  const auto holds = [&](std::size_t budget_bytes) {
    const auto blocks = divide(budget_bytes, split_tokens, split_chunk);
    return blocks && std::equal(needed.begin(), needed.end(), blocks->begin(),
                                [](std::size_t need, std::size_t has) { return need <= has; });
  };
  std::size_t high = 1;
  while (!holds(high)) {
    if (high > kMost / 2) return std::numeric_limits<std::size_t>::max();
    high *= 2;
  }
  std::size_t low = high / 2;  // does not hold it, or is 0
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

std::size_t KvGeometry::bytes_per_token() const noexcept {
  std::size_t total = 0;
  for (const GroupGeometry& group : groups) {
    if (group.holds_state()) continue;
    const bool is_encoded = group.encoded_pool != kNoPool;
    for (const std::size_t bytes : pools[group.pool(is_encoded)].token_bytes)
      total += bytes * group.layers.size();
  }
  return total;
}

}  // namespace kvasir::kv
