#include "kv/kv_planes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/detail/store_core.h"
#include "ops/device.h"

namespace kvasir::kv {
namespace {

enum class Direction : bool { out_of_blocks, into_blocks };

struct TokenCopy {
  ops::Device& device;
  const PlaneView& plane;
  std::span<const BlockId> blocks;
  Direction direction;

  void move(std::byte* stored, std::byte* image) const noexcept {
    if (direction == Direction::out_of_blocks)
      device.copy(image, stored, plane.row_bytes);
    else
      device.copy(stored, image, plane.row_bytes);
  }
  // Between blocks and a token-major image whose first token is at position `base`. A block holds
  // one head's tokens together, the image one token's heads: rows move.
  void move_tokens(std::byte* image,
                   std::uint32_t base,
                   std::uint32_t begin,
                   std::uint32_t end) const noexcept {
    for (std::uint32_t p = begin; p < end; ++p) {
      const BlockId block = blocks[p / plane.block_tokens];
      for (std::uint32_t head = 0; head < plane.n_heads; ++head)
        move(plane.row(block, head, p % plane.block_tokens),
             image + (std::size_t{p - base} * plane.n_heads + head) * plane.row_bytes);
    }
  }
};

// A state is one row, which a table of no tokens does not have.
std::size_t image_bytes(const GroupGeometry& group,
                        const PlaneView& plane,
                        std::uint32_t length,
                        std::uint32_t first_position) {
  const std::size_t n_rows = group.holds_state() ? (length > 0 ? 1 : 0) : length - first_position;
  return n_rows * plane.n_heads * plane.row_bytes;
}

const GroupGeometry& group_of(const StoreCore& core, std::size_t layer) {
  return core.geometry.groups[core.geometry.layers[layer].group];
}

// Which form the planes say they have; none when it is not one that a state of that length has.
std::optional<bool> form_of(const StoreCore& core,
                            const KvPlanes& planes,
                            KvOrigin origin,
                            std::size_t layer) {
  const GroupGeometry& group = core.geometry.groups[core.geometry.layers[layer].group];
  const std::string& signature = planes.layers[layer].signature;
  const std::uint64_t t = core.geometry.transition;
  const bool may_be_exact =
      group.exact_pool != kNoPool &&
      (!group.converts() || planes.length <= t || origin == KvOrigin::foreign);
  const bool may_be_encoded =
      group.encoded_pool != kNoPool && (!group.converts() || planes.length >= t);
  if (may_be_exact && signature == core.signature(layer, false)) return false;
  if (may_be_encoded && signature == core.signature(layer, true)) return true;
  return std::nullopt;
}

// Each group's layers share a table, so they must agree on what is held; and it must cover the
// window at the length.
Status check_planes(const StoreCore& core, const KvPlanes& planes, KvOrigin origin) {
  if (planes.layers.size() != core.list.size()) return invalid("kv planes: layer count");
  for (std::size_t i = 0; i < planes.layers.size(); ++i) {
    const KvLayerPlanes& layer = planes.layers[i];
    const GroupGeometry& group = core.geometry.groups[core.geometry.layers[i].group];
    const std::string where = "kv planes of layer " + std::to_string(i) + ": ";
    const std::optional<bool> is_encoded = form_of(core, planes, origin, i);
    if (!is_encoded) return invalid(where + "signature " + layer.signature);
    if (is_encoded != form_of(core, planes, origin, group.layers[0]))
      return invalid(where + "form");
    if (layer.first_position != planes.layers[group.layers[0]].first_position ||
        layer.first_position > group.layout->first_needed(group.window, planes.length) ||
        (group.holds_state() && layer.first_position != planes.length))
      return invalid(where + "first position");
    const std::vector<PlaneView> stored = core.layer_planes(i, *is_encoded);
    if (layer.planes.size() != stored.size()) return invalid(where + "plane count");
    for (std::size_t j = 0; j < stored.size(); ++j) {
      const std::size_t bytes = image_bytes(group, stored[j], planes.length, layer.first_position);
      if (layer.planes[j].size_bytes() != bytes) return invalid(where + "size");
    }
  }
  return {};
}

// Where the restored table of a group starts, and its blocks.
struct RestoredTable {
  std::uint32_t first_position = 0;
  bool is_encoded = false;
  std::size_t n_held = 0;  // blocks
  std::size_t n_blocks = 0;
};

RestoredTable restored_table(const StoreCore& core,
                             const KvPlanes& planes,
                             KvOrigin origin,
                             std::size_t g) {
  const GroupGeometry& group = core.geometry.groups[g];
  const std::uint32_t block_tokens = core.options.block_tokens;
  const std::uint32_t needed = group.layout->first_needed(group.window, planes.length);
  RestoredTable out;
  out.first_position =
      std::max(planes.layers[group.layers[0]].first_position, needed / block_tokens * block_tokens);
  out.is_encoded = form_of(core, planes, origin, group.layers[0]).value_or(false);
  if (group.holds_state()) {
    out.n_held = out.n_blocks = core.table_size(group, planes.length);
    return out;
  }
  const bool holds_any = out.first_position < planes.length;
  out.n_blocks = holds_any ? core.blocks_for(planes.length) : planes.length / block_tokens;
  out.n_held = holds_any ? out.n_blocks - out.first_position / block_tokens : 0;
  return out;
}

}  // namespace

Result<std::vector<Buffer>> KvStore::planes(const KvState& state, std::size_t layer) const {
  KVASIR_CHECK(state && state.body_->core == core_.get() && layer < core_->list.size());
  const StateTable& table = state.body_->tables[core_->geometry.layers[layer].group];
  const GroupGeometry& group = group_of(*core_, layer);
  const std::uint32_t first = table.first_position;
  std::vector<Buffer> out;
  for (const PlaneView& plane : core_->layer_planes(layer, table.is_encoded)) {
    KVASIR_TRY(Buffer image,
               core_->device.allocate(image_bytes(group, plane, state.length(), first),
                                      ops::MemoryKind::host));
    const TokenCopy copy{core_->device, plane, table.blocks, Direction::out_of_blocks};
    if (!group.holds_state())
      copy.move_tokens(image.data(), first, first, state.length());
    else if (state.length() > 0)
      copy.move(plane.row(table.blocks[0], 0, 0), image.data());
    out.push_back(std::move(image));
  }
  KVASIR_TRY_DO(core_->device.synchronize());
  return out;
}

Result<KvPlanes> KvStore::planes(const KvState& state) const {
  KvPlanes out;
  out.length = state.length();
  for (std::size_t layer = 0; layer < core_->list.size(); ++layer) {
    const StateTable& table = state.body_->tables[core_->geometry.layers[layer].group];
    KVASIR_TRY(std::vector<Buffer> images, planes(state, layer));
    out.layers.push_back({.signature = core_->signature(layer, table.is_encoded),
                          .first_position = table.first_position,
                          .planes = std::move(images)});
  }
  return out;
}

Result<KvState> KvStore::restore(const KvPlanes& planes, KvOrigin origin) {
  KVASIR_TRY_DO(check_planes(*core_, planes, origin));
  const KvGeometry& geometry = core_->geometry;
  std::vector<std::size_t> needed(core_->pools.size());
  for (std::size_t g = 0; g < geometry.groups.size(); ++g) {
    const RestoredTable table = restored_table(*core_, planes, origin, g);
    needed[geometry.groups[g].pool(table.is_encoded)] += table.n_held;
  }
  KVASIR_TRY_DO(core_->make_room(needed));

  KvState state(core_->new_body());
  StateBody& body = *state.body_;
  body.length = planes.length;
  body.is_foreign = origin == KvOrigin::foreign && planes.length > 0;
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const RestoredTable shape = restored_table(*core_, planes, origin, g);
    StateTable& table = body.tables[g];
    table.first_position = shape.first_position;
    table.is_encoded = shape.is_encoded;
    table.blocks.assign(shape.n_blocks, kNoBlock);
    for (std::size_t i = shape.n_blocks - shape.n_held; i < shape.n_blocks; ++i)
      table.blocks[i] = core_->pool_of(g, table.is_encoded).take();
    if (shape.is_encoded && geometry.groups[g].converts())
      body.min_reusable = static_cast<std::uint32_t>(geometry.transition);
  }
  for (std::size_t i = 0; i < planes.layers.size(); ++i) {
    const StateTable& table = body.tables[geometry.layers[i].group];
    const KvLayerPlanes& layer = planes.layers[i];
    const std::vector<PlaneView> stored = core_->layer_planes(i, table.is_encoded);
    for (std::size_t j = 0; j < stored.size(); ++j) {
      const TokenCopy copy{core_->device, stored[j], table.blocks, Direction::into_blocks};
      std::byte* image = layer.planes[j].data();
      if (!group_of(*core_, i).holds_state())
        copy.move_tokens(image, layer.first_position, table.first_position, planes.length);
      else if (planes.length > 0)
        copy.move(stored[j].row(table.blocks[0], 0, 0), image);
    }
  }
  KVASIR_TRY_DO(core_->device.synchronize());
  return state;
}

}  // namespace kvasir::kv
