#include "kv/detail/geometry.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace kvasir::kv {
namespace {

// Bounds that keep every byte count below 2^63; far above any model.
constexpr std::size_t kMaxWidth = std::size_t{1} << 24;
constexpr std::size_t kMaxLayers = std::size_t{1} << 14;

struct LayerClass {
  std::uint32_t window = 0;
  const KvLayoutOps* layout = nullptr;
  std::vector<std::uint32_t> layers;
};
using Classes = std::vector<std::vector<LayerClass>>;  // a pool

std::uint32_t pool_of(std::vector<PoolGeometry>& pools, Classes& classes, std::size_t width) {
  const auto same = [&](const PoolGeometry& pool) { return pool.width == width; };
  const auto found = std::find_if(pools.begin(), pools.end(), same);
  if (found != pools.end()) return static_cast<std::uint32_t>(found - pools.begin());
  pools.push_back({.width = width});
  classes.emplace_back();
  return static_cast<std::uint32_t>(pools.size() - 1);
}

void add_layer(std::vector<LayerClass>& classes,
               std::uint32_t window,
               const KvLayoutOps* layout,
               std::uint32_t index) {
  const auto same = [&](const LayerClass& c) { return c.window == window && c.layout == layout; };
  auto found = std::find_if(classes.begin(), classes.end(), same);
  if (found == classes.end()) {
    classes.push_back({.window = window, .layout = layout, .layers = {}});
    found = classes.end() - 1;
  }
  found->layers.push_back(index);
}

}  // namespace

Result<KvGeometry> KvGeometry::make(const KvList& list,
                                    std::uint32_t block_tokens,
                                    std::size_t element_bytes) {
  if (list.size() > kMaxLayers) return invalid("too many KV layers");
  KvGeometry out;
  out.block_tokens = block_tokens;
  out.element_bytes = element_bytes;
  out.layers.resize(list.size());
  Classes classes;
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    const std::size_t width = std::size_t{list[i].n_kv_heads} * list[i].head_dim;
    const KvLayoutOps* layout = find_layout(list[i]);
    if (layout == nullptr) return unsupported("KV layer " + std::to_string(i) + " has no layout");
    if (width == 0 || width > kMaxWidth)
      return invalid("KV layer " + std::to_string(i) + " has an unusable width");
    add_layer(classes[pool_of(out.pools, classes, width)], list[i].window, layout, i);
  }
  for (std::uint32_t p = 0; p < out.pools.size(); ++p) {
    PoolGeometry& pool = out.pools[p];
    std::size_t divisor = 0;
    for (const LayerClass& c : classes[p]) divisor = std::gcd(divisor, c.layers.size());
    pool.layers_per_block = static_cast<std::uint32_t>(divisor);
    pool.plane_block_bytes = pool.width * block_tokens * element_bytes;
    for (const LayerClass& c : classes[p]) {
      for (std::size_t begin = 0; begin < c.layers.size(); begin += divisor) {
        const auto first = c.layers.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto group = static_cast<std::uint32_t>(out.groups.size());
        out.groups.push_back({.pool = p,
                              .window = c.window,
                              .layout = c.layout,
                              .layers = {first, first + static_cast<std::ptrdiff_t>(divisor)}});
        ++pool.n_groups;
        for (std::uint32_t slot = 0; slot < divisor; ++slot)
          out.layers[out.groups.back().layers[slot]] = {group, slot};
      }
    }
  }
  return out;
}

std::size_t KvGeometry::projected_blocks(std::uint32_t pool,
                                         std::uint64_t n_tokens,
                                         std::uint32_t max_chunk) const noexcept {
  std::size_t blocks = 0;
  for (const GroupGeometry& group : groups) {
    if (group.pool == pool)
      blocks += group.layout->projected_blocks(group.window, n_tokens, max_chunk, block_tokens);
  }
  return blocks;
}

Result<std::vector<std::uint32_t>> KvGeometry::divide(std::size_t budget_bytes,
                                                      std::uint32_t split_tokens,
                                                      std::uint32_t split_chunk) const {
  std::vector<double> demand(pools.size());
  for (std::uint32_t p = 0; p < pools.size(); ++p) {
    const std::size_t blocks = projected_blocks(p, std::max(split_tokens, 1u), split_chunk);
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

}  // namespace kvasir::kv
