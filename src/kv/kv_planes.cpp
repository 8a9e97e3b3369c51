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
  const KvLayerView& view;
  std::span<const BlockId> blocks;
  std::uint32_t base;  // position of the image's first token
  Direction direction;

  // Moves positions [begin, end) between blocks and a token-major image. A block holds one head's
  // tokens together, the image one token's heads: rows move.
  void move(const PlaneView& plane,
            std::byte* image,
            std::uint32_t begin,
            std::uint32_t end) const noexcept {
    for (std::uint32_t p = begin; p < end; ++p) {
      const BlockId block = blocks[p / view.block_tokens];
      for (std::uint32_t head = 0; head < view.n_kv_heads; ++head) {
        const std::size_t at = view.row_index(block, head, p % view.block_tokens);
        std::byte* stored = plane.data + at * plane.row_bytes;
        std::byte* row = image + (std::size_t{p - base} * view.n_kv_heads + head) * plane.row_bytes;
        if (direction == Direction::out_of_blocks)
          device.copy(row, stored, plane.row_bytes);
        else
          device.copy(stored, row, plane.row_bytes);
      }
    }
  }
};

std::size_t image_bytes(const KvLayerView& view, const PlaneView& plane, std::uint32_t n_tokens) {
  return std::size_t{n_tokens} * view.n_kv_heads * plane.row_bytes;
}

// Which form the planes say they have; none when it is not one that a state of that length has.
std::optional<bool> form_of(const StoreCore& core, const KvPlanes& planes, std::size_t layer) {
  const GroupGeometry& group = core.geometry.groups[core.geometry.layers[layer].group];
  const std::string& signature = planes.layers[layer].signature;
  const std::uint64_t t = core.geometry.transition;
  const bool may_be_exact =
      group.exact_pool != kNoPool && (!group.converts() || planes.length <= t);
  const bool may_be_encoded =
      group.encoded_pool != kNoPool && (!group.converts() || planes.length >= t);
  if (may_be_exact && signature == core.signature(layer, false)) return false;
  if (may_be_encoded && signature == core.signature(layer, true)) return true;
  return std::nullopt;
}

// Each group's layers share a table, so they must agree on what is held; and it must cover the
// window at the length.
Status check_planes(const StoreCore& core, const KvPlanes& planes) {
  if (planes.layers.size() != core.list.size()) return invalid("kv planes: layer count");
  for (std::size_t i = 0; i < planes.layers.size(); ++i) {
    const KvLayerPlanes& layer = planes.layers[i];
    const GroupGeometry& group = core.geometry.groups[core.geometry.layers[i].group];
    const std::string where = "kv planes of layer " + std::to_string(i) + ": ";
    const std::optional<bool> is_encoded = form_of(core, planes, i);
    if (!is_encoded) return invalid(where + "signature " + layer.signature);
    if (is_encoded != form_of(core, planes, group.layers[0])) return invalid(where + "form");
    if (layer.first_position != planes.layers[group.layers[0]].first_position ||
        layer.first_position > group.layout->first_needed(group.window, planes.length))
      return invalid(where + "first position");
    const std::vector<PlaneView> stored = core.layer_planes(i, *is_encoded);
    if (layer.planes.size() != stored.size()) return invalid(where + "plane count");
    for (std::size_t j = 0; j < stored.size(); ++j) {
      const std::size_t bytes =
          image_bytes(core.layer_view(i), stored[j], planes.length - layer.first_position);
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

RestoredTable restored_table(const StoreCore& core, const KvPlanes& planes, std::size_t g) {
  const GroupGeometry& group = core.geometry.groups[g];
  const std::uint32_t block_tokens = core.options.block_tokens;
  const std::uint32_t needed = group.layout->first_needed(group.window, planes.length);
  RestoredTable out;
  out.first_position =
      std::max(planes.layers[group.layers[0]].first_position, needed / block_tokens * block_tokens);
  out.is_encoded = form_of(core, planes, group.layers[0]).value_or(false);
  const bool holds_any = out.first_position < planes.length;
  out.n_blocks = holds_any ? core.blocks_for(planes.length) : planes.length / block_tokens;
  out.n_held = holds_any ? out.n_blocks - out.first_position / block_tokens : 0;
  return out;
}

}  // namespace

Result<std::vector<Buffer>> KvStore::planes(const KvState& state, std::size_t layer) const {
  KVASIR_CHECK(state && state.body_->core == core_.get() && layer < core_->list.size());
  const StateTable& table = state.body_->tables[core_->geometry.layers[layer].group];
  const KvLayerView view = core_->layer_view(layer);
  const std::uint32_t n_tokens = state.length() - table.first_position;
  const TokenCopy copy{core_->device, view, table.blocks, table.first_position,
                       Direction::out_of_blocks};
  std::vector<Buffer> out;
  for (const PlaneView& plane : core_->layer_planes(layer, table.is_encoded)) {
    KVASIR_TRY(Buffer image, core_->device.allocate(image_bytes(view, plane, n_tokens)));
    copy.move(plane, image.data(), table.first_position, state.length());
    out.push_back(std::move(image));
  }
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

Result<KvState> KvStore::restore(const KvPlanes& planes) {
  KVASIR_TRY_DO(check_planes(*core_, planes));
  const KvGeometry& geometry = core_->geometry;
  std::vector<std::size_t> needed(core_->pools.size());
  for (std::size_t g = 0; g < geometry.groups.size(); ++g) {
    const RestoredTable table = restored_table(*core_, planes, g);
    needed[geometry.groups[g].pool(table.is_encoded)] += table.n_held;
  }
  KVASIR_TRY_DO(core_->make_room(needed));

  KvState state(core_->new_body());
  StateBody& body = *state.body_;
  body.length = planes.length;
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const RestoredTable shape = restored_table(*core_, planes, g);
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
    const KvLayerView view = core_->layer_view(i);
    const KvLayerPlanes& layer = planes.layers[i];
    const TokenCopy copy{core_->device, view, table.blocks, layer.first_position,
                         Direction::into_blocks};
    const std::vector<PlaneView> stored = core_->layer_planes(i, table.is_encoded);
    for (std::size_t j = 0; j < stored.size(); ++j)
      copy.move(stored[j], layer.planes[j].data(), table.first_position, planes.length);
  }
  return state;
}

}  // namespace kvasir::kv
