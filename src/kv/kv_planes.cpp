#include "kv/kv_planes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/detail/store_core.h"
#include "ops/device.h"

namespace kvasir::kv {
namespace {

enum class Direction : bool { out_of_blocks, into_blocks };

// Moves positions [begin, end) of one plane between blocks and a token-major image whose first
// token is position `base`. A block holds one head's tokens together, the image one token's heads:
// rows of head_dim elements move.
void copy_tokens(ops::Device& device,
                 const KvLayerView& view,
                 std::byte* plane,
                 std::span<const BlockId> blocks,
                 std::byte* image,
                 std::uint32_t base,
                 std::uint32_t begin,
                 std::uint32_t end,
                 Direction direction) {
  const std::size_t row_bytes = std::size_t{view.head_dim} * size_of(view.type);
  for (std::uint32_t p = begin; p < end; ++p) {
    const BlockId block = blocks[p / view.block_tokens];
    for (std::uint32_t head = 0; head < view.n_kv_heads; ++head) {
      std::byte* stored = plane + view.offset(block, head, p % view.block_tokens);
      std::byte* row = image + (std::size_t{p - base} * view.n_kv_heads + head) * row_bytes;
      if (direction == Direction::out_of_blocks)
        device.copy(row, stored, row_bytes);
      else
        device.copy(stored, row, row_bytes);
    }
  }
}

std::size_t image_bytes(const KvLayerView& view, std::uint32_t n_tokens) {
  return std::size_t{n_tokens} * view.n_kv_heads * view.head_dim * size_of(view.type);
}

// Each group's layers share a table, so they must agree on what is held; and it must cover the
// window at the length.
Status check_planes(const KvStore& store, const KvGeometry& geometry, const KvPlanes& planes) {
  if (planes.layers.size() != store.kv_list().size()) return invalid("kv planes: layer count");
  for (std::size_t i = 0; i < planes.layers.size(); ++i) {
    const KvLayerPlanes& layer = planes.layers[i];
    const KvLayerSpec& spec = store.kv_list()[i];
    const GroupGeometry& group = geometry.groups[geometry.layers[i].group];
    const std::string where = "kv planes of layer " + std::to_string(i) + ": ";
    if (layer.signature != store.signature(i))
      return invalid(where + "signature " + layer.signature);
    if (layer.first_position != planes.layers[group.layers[0]].first_position ||
        layer.first_position > group.layout->first_needed(group.window, planes.length))
      return invalid(where + "first position");
    const std::size_t bytes = std::size_t{planes.length - layer.first_position} * spec.n_kv_heads *
                              spec.head_dim * geometry.element_bytes;
    if (layer.k.size_bytes() != bytes || layer.v.size_bytes() != bytes)
      return invalid(where + "size");
  }
  return {};
}

}  // namespace

Result<Buffer> KvStore::plane(const KvState& state, std::size_t layer, KvPlane which) const {
  KVASIR_CHECK(state && state.body_->core == core_.get() && layer < core_->list.size());
  const StateTable& table = state.body_->tables[core_->geometry.layers[layer].group];
  const KvLayerView view = core_->layer_view(layer);
  const std::uint32_t n_tokens = state.length() - table.first_position;
  KVASIR_TRY(Buffer image, core_->device.allocate(image_bytes(view, n_tokens)));
  copy_tokens(core_->device, view, which == KvPlane::k ? view.k : view.v, table.blocks,
              image.data(), table.first_position, table.first_position, state.length(),
              Direction::out_of_blocks);
  return image;
}

Result<KvPlanes> KvStore::planes(const KvState& state) const {
  KvPlanes out;
  out.length = state.length();
  for (std::size_t layer = 0; layer < core_->list.size(); ++layer) {
    const StateTable& table = state.body_->tables[core_->geometry.layers[layer].group];
    KVASIR_TRY(Buffer k, plane(state, layer, KvPlane::k));
    KVASIR_TRY(Buffer v, plane(state, layer, KvPlane::v));
    out.layers.push_back({.signature = signature(layer),
                          .first_position = table.first_position,
                          .k = std::move(k),
                          .v = std::move(v)});
  }
  return out;
}

Result<KvState> KvStore::restore(const KvPlanes& planes) {
  KVASIR_TRY_DO(check_planes(*this, core_->geometry, planes));
  const std::uint32_t block_tokens = core_->options.block_tokens;
  const std::uint32_t n_blocks = core_->blocks_for(planes.length);
  const auto held_from = [&](const GroupGeometry& group) {
    const std::uint32_t needed = group.layout->first_needed(group.window, planes.length);
    return std::max(planes.layers[group.layers[0]].first_position,
                    needed / block_tokens * block_tokens);
  };
  std::vector<std::size_t> needed(core_->pools.size());
  for (const GroupGeometry& group : core_->geometry.groups)
    if (held_from(group) < planes.length)
      needed[group.pool] += n_blocks - held_from(group) / block_tokens;
  KVASIR_TRY_DO(core_->make_room(needed));

  KvState state(core_->new_body());
  StateBody& body = *state.body_;
  body.length = planes.length;
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const GroupGeometry& group = core_->geometry.groups[g];
    StateTable& table = body.tables[g];
    table.first_position = held_from(group);
    const bool holds_any = table.first_position < planes.length;
    table.blocks.assign(holds_any ? n_blocks : planes.length / block_tokens, kNoBlock);
    for (std::size_t i = table.first_position / block_tokens; holds_any && i < n_blocks; ++i)
      table.blocks[i] = core_->pools[group.pool].take();
  }
  for (std::size_t i = 0; i < planes.layers.size(); ++i) {
    const StateTable& table = body.tables[core_->geometry.layers[i].group];
    const KvLayerView view = core_->layer_view(i);
    const KvLayerPlanes& layer = planes.layers[i];
    for (const auto& [plane, image] : {std::pair{view.k, layer.k.data()}, {view.v, layer.v.data()}})
      copy_tokens(core_->device, view, plane, table.blocks, image, layer.first_position,
                  table.first_position, planes.length, Direction::into_blocks);
  }
  return state;
}

}  // namespace kvasir::kv
