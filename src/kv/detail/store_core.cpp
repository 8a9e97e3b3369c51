#include "kv/detail/store_core.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/detail/state_views.h"
#include "ops/device.h"
#include "ops/op_table.h"

namespace kvasir::kv {

std::unique_ptr<StateBody> StoreCore::new_body() {
  auto body = std::make_unique<StateBody>();
  body->core = this;
  body->tables.resize(geometry.groups.size());
  for (std::size_t g = 0; g < geometry.groups.size(); ++g)
    body->tables[g].is_encoded = geometry.groups[g].is_born_encoded();
  return body;
}

// The most heads that every layer of the pool can be divided into; 0: not by heads.
std::uint32_t StoreCore::heads_of_pool(std::uint32_t pool) const noexcept {
  std::uint32_t out = 0;
  for (const GroupGeometry& group : geometry.groups) {
    if (group.exact_pool != pool && group.encoded_pool != pool) continue;
    for (const std::uint32_t layer : group.layers)
      out = std::gcd(out, list[layer].is_attention() ? list[layer].n_kv_heads : 1);
  }
  return out;
}

Status StoreCore::allocate_planes(std::uint32_t pool, std::uint32_t n_blocks) {
  const PoolGeometry& shape = geometry.pools[pool];
  const std::uint32_t n_heads = heads_of_pool(pool);
  auto& of_pool = planes.emplace_back(shape.layers_per_block);
  for (std::vector<Buffer>& of_layer : of_pool) {
    for (std::size_t i = 0; i < shape.token_bytes.size(); ++i) {
      KVASIR_TRY(Buffer plane,
                 device.allocate_blocks(n_blocks, shape.plane_block_bytes(i), n_heads));
      of_layer.push_back(std::move(plane));
    }
  }
  return {};
}

StateBody& StoreCore::row(KvRowId id) const noexcept {
  const auto found = rows.find(id);
  KVASIR_CHECK(found != rows.end()) << "no kv row " << id.value;
  return *found->second;
}

StateBody& StoreCore::idle_row(KvRowId id) const noexcept {
  StateBody& body = row(id);
  KVASIR_CHECK(!body.in_step) << "kv row " << id.value << " is in a step";
  return body;
}

void StoreCore::link(StateBody& body) noexcept {
  body.previous = last_state;
  body.next = nullptr;
  (last_state ? last_state->next : first_state) = &body;
  last_state = &body;
}

void StoreCore::unlink(StateBody& body) noexcept {
  (body.previous ? body.previous->next : first_state) = body.next;
  (body.next ? body.next->previous : last_state) = body.previous;
  body.previous = body.next = nullptr;
}

std::uint32_t StoreCore::first_resumable(const StateBody& body) const noexcept {
  std::uint32_t first = body.min_reusable;
  for (std::size_t g = 0; g < geometry.groups.size(); ++g) {
    const GroupGeometry& group = geometry.groups[g];
    first =
        std::max(first, group.layout->first_resumable(group.window, body.tables[g].first_position));
  }
  return first;
}

bool StoreCore::resumable_at(const StateBody& body, std::uint32_t p) const noexcept {
  return p <= body.length && (p == 0 || p >= first_resumable(body));
}

namespace {

// Blocks a table keeps when cut to its first p positions. Nothing of them is held when p lies at or
// before the first held position (an empty prefix, or a window of one): then only whole blocks
// remain, as released ones. A state is kept whole or not at all.
std::uint32_t kept_blocks(const GroupGeometry& group,
                          const StateTable& table,
                          std::uint32_t p,
                          std::uint32_t block_tokens) {
  if (group.holds_state()) return p > 0 ? 1 : 0;
  const bool holds_any = table.first_position < p;
  return holds_any ? (p + block_tokens - 1) / block_tokens : p / block_tokens;
}

}  // namespace

std::unique_ptr<StateBody> StoreCore::clone_prefix(const StateBody& body, std::uint32_t p) {
  KVASIR_CHECK(!body.in_step && resumable_at(body, p));
  auto out = new_body();
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const StateTable& from = body.tables[g];
    const std::uint32_t kept = kept_blocks(geometry.groups[g], from, p, options.block_tokens);
    out->tables[g].blocks.assign(from.blocks.begin(), from.blocks.begin() + kept);
    out->tables[g].first_position = std::min(from.first_position, p);
    if (p > 0) out->tables[g].is_encoded = from.is_encoded;
  }
  out->length = p;
  if (p > 0) out->min_reusable = body.min_reusable;
  out->is_foreign = body.is_foreign && p > 0;
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    for (const BlockId block : out->tables[g].blocks)
      if (block != kNoBlock) pool_of(g, body.tables[g].is_encoded).share(block);
  }
  return out;
}

Status StoreCore::trim_to(StateBody& body, std::uint32_t p) {
  KVASIR_CHECK(!body.in_step);
  if (!resumable_at(body, p)) {
    return invalid("kv state of " + std::to_string(body.length) + " tokens cannot be trimmed to " +
                   std::to_string(p));
  }
  if (p == body.length) return {};
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    StateTable& table = body.tables[g];
    const std::uint32_t kept = kept_blocks(geometry.groups[g], table, p, options.block_tokens);
    for (std::size_t i = table.blocks.size(); i > kept; --i) {
      const BlockId block = table.blocks[i - 1];
      if (block != kNoBlock) pool_of(g, table.is_encoded).drop(block);
    }
    table.blocks.resize(kept);
    table.first_position = std::min(table.first_position, p);
    if (p == 0) table.is_encoded = geometry.groups[g].is_born_encoded();
  }
  body.length = p;
  if (p == 0) body.min_reusable = 0;
  if (p == 0) body.is_foreign = false;
  return {};
}

void StoreCore::drop_all(StateBody& body) noexcept {
  for (std::size_t g = body.tables.size(); g > 0; --g) {
    StateTable& table = body.tables[g - 1];
    for (std::size_t i = table.blocks.size(); i > 0; --i) {
      const BlockId block = table.blocks[i - 1];
      if (block != kNoBlock) pool_of(g - 1, table.is_encoded).drop(block);
    }
    table.blocks.clear();
  }
  body.length = 0;
}

void StoreCore::release_behind_windows(StateBody& body) noexcept {
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const GroupGeometry& group = geometry.groups[g];
    StateTable& table = body.tables[g];
    if (group.holds_state()) continue;
    const std::uint32_t end =
        group.layout->first_needed(group.window, body.length) / options.block_tokens;
    for (std::uint32_t i = table.first_position / options.block_tokens; i < end; ++i) {
      if (table.blocks[i] == kNoBlock) continue;
      pool_of(g, table.is_encoded).drop(table.blocks[i]);
      table.blocks[i] = kNoBlock;
    }
    table.first_position = std::max(table.first_position, end * options.block_tokens);
  }
}

bool StoreCore::tail_is_shared(const StateBody& body, std::uint32_t group) const noexcept {
  const StateTable& table = body.tables[group];
  if (geometry.groups[group].holds_state()) return false;  // never written in place
  if (body.length % options.block_tokens == 0 || table.first_position >= body.length) return false;
  return pool_of(group, table.is_encoded).refs(table.blocks.back()) > 1;
}

void StoreCore::add_needed(const StateBody& body,
                           std::uint32_t n_tokens,
                           std::span<std::size_t> needed) const noexcept {
  const std::uint32_t wanted = blocks_for(std::uint64_t{body.length} + n_tokens);
  for (std::uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const StateTable& table = body.tables[g];
    const std::size_t appended =
        geometry.groups[g].holds_state() ? 1 : wanted - table.blocks.size();
    needed[geometry.groups[g].pool(table.is_encoded)] +=
        appended + (tail_is_shared(body, g) ? 1 : 0);
  }
}

Status StoreCore::make_room(std::span<const std::size_t> needed) {
  const auto enough = [&] {
    for (std::size_t p = 0; p < pools.size(); ++p)
      if (pools[p].n_free() < needed[p]) return false;
    return true;
  };
  if (enough()) return {};
  if (reclaimer && reclaimer->reclaim(needed) && enough()) return {};
  return Error{Errc::capacity, "kv blocks"};
}

namespace {

KvEncodedSide side_of(const codec::KvCodec& codec,
                      std::uint32_t dim,
                      std::span<const Buffer> planes,
                      std::size_t& next) noexcept {
  KvEncodedSide side{.codec = codec, .planes = {}, .row_bytes = {}};
  for (std::size_t part = 0; part < codec::kKvRowParts; ++part) {
    side.row_bytes[part] = codec::row_bytes(codec, static_cast<codec::KvRowPart>(part), dim);
    if (side.row_bytes[part] > 0) side.planes[part] = planes[next++].data();
  }
  return side;
}

}  // namespace

KvLayerView StoreCore::layer_view(std::size_t layer) const noexcept {
  const LayerPlace place = geometry.layers[layer];
  const GroupGeometry& group = geometry.groups[place.group];
  KvLayerView view{.type = options.scheme.type,
                   .n_kv_heads = list[layer].n_kv_heads,
                   .head_dim = list[layer].head_dim,
                   .block_tokens = options.block_tokens,
                   .window = list[layer].window,
                   .rows = {},
                   .k_encoded = {},
                   .v_encoded = {}};
  if (group.exact_pool != kNoPool) {
    const std::vector<Buffer>& exact = planes[group.exact_pool][place.slot];
    view.k = exact[0].data();
    view.v = exact[1].data();
  }
  if (group.encoded_pool != kNoPool) {
    const std::vector<Buffer>& encoded = planes[group.encoded_pool][place.slot];
    std::size_t next = 0;
    view.k_encoded = side_of(forms[layer].k, view.head_dim, encoded, next);
    view.v_encoded = side_of(forms[layer].v, view.head_dim, encoded, next);
  }
  return view;
}

LatentLayerView StoreCore::latent_view(std::size_t layer) const noexcept {
  LatentLayerView view =
      latent_view_of(list[layer].latent, options.scheme.type, options.block_tokens);
  const LayerPlace place = geometry.layers[layer];
  const std::vector<Buffer>& stored = planes[geometry.groups[place.group].exact_pool][place.slot];
  view.latent = stored[0].data();
  if (view.index_dim > 0) view.index = stored[1].data();
  return view;
}

RecurrentLayerView StoreCore::recurrent_view(std::size_t layer) const noexcept {
  return recurrent_view_of(list[layer].recurrent, options.scheme.type);
}

std::vector<PlaneView> StoreCore::layer_planes(std::size_t layer, bool is_encoded) const {
  const LayerPlace place = geometry.layers[layer];
  const std::uint32_t pool = geometry.groups[place.group].pool(is_encoded);
  const PoolGeometry& shape = geometry.pools[pool];
  const std::uint32_t n_heads = list[layer].is_attention() ? list[layer].n_kv_heads : 1;
  std::vector<PlaneView> out;
  for (std::size_t i = 0; i < shape.token_bytes.size(); ++i)
    out.push_back({planes[pool][place.slot][i].data(), shape.token_bytes[i] / n_heads, n_heads,
                   shape.block_tokens});
  return out;
}

std::string StoreCore::signature(std::size_t layer, bool is_encoded) const {
  const GroupGeometry& group = geometry.groups[geometry.layers[layer].group];
  const std::string exact(name_of(options.scheme.type));
  const std::string k = is_encoded ? codec::signature_part(forms[layer].k) : exact;
  const std::string v = is_encoded ? codec::signature_part(forms[layer].v) : exact;
  std::string out = group.layout->signature(list[layer], k + ":" + v);
  if (group.converts()) out += "@" + std::to_string(geometry.transition);
  return out;
}

void StoreCore::copy_slots(std::uint32_t group,
                           bool is_encoded,
                           BlockId from,
                           BlockId to,
                           std::uint32_t begin,
                           std::uint32_t end) noexcept {
  for (const std::uint32_t layer : geometry.groups[group].layers) {
    for (const PlaneView& plane : layer_planes(layer, is_encoded)) {
      for (std::uint32_t head = 0; head < plane.n_heads; ++head)
        device.copy(plane.row(to, head, begin), plane.row(from, head, begin),
                    std::size_t{end - begin} * plane.row_bytes);
    }
  }
}

bool StoreCore::is_due(const StateBody& body) const noexcept {
  if (body.length < geometry.transition) return false;
  for (std::size_t g = 0; g < body.tables.size(); ++g)
    if (geometry.groups[g].converts() && !body.tables[g].is_encoded) return true;
  return false;
}

Status StoreCore::convert(StateBody& body) {
  KVASIR_CHECK(!body.in_step);
  if (!is_due(body)) return {};
  for (std::uint32_t g = 0; g < body.tables.size(); ++g) {
    if (!geometry.groups[g].converts() || body.tables[g].is_encoded) continue;
    KVASIR_TRY_DO(convert_group(body, g));
    body.min_reusable = body.length;  // also when a later group finds no blocks
  }
  return {};
}

// Reserves, encodes, publishes, and only then lets go of the exact source.
Status StoreCore::convert_group(StateBody& body, std::uint32_t group) {
  StateTable& table = body.tables[group];
  BlockPool& exact = pool_of(group, false);
  BlockPool& encoded = pool_of(group, true);
  const auto is_held = [](BlockId block) { return block != kNoBlock; };
  std::vector<std::size_t> needed(pools.size());
  needed[geometry.groups[group].encoded_pool] =
      static_cast<std::size_t>(std::count_if(table.blocks.begin(), table.blocks.end(), is_held));
  std::vector<BlockId> blocks(table.blocks.size(), kNoBlock);
  KVASIR_TRY_DO(make_room(needed));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (is_held(table.blocks[i])) blocks[i] = encoded.take();
  for (const std::uint32_t layer : geometry.groups[group].layers) {
    device.ops().kv_convert(device, {.kv = layer_view(layer),
                                     .from = table.blocks.data(),
                                     .to = blocks.data(),
                                     .begin = table.first_position,
                                     .end = body.length});
  }
  table.blocks.swap(blocks);
  table.is_encoded = true;
  for (std::size_t i = blocks.size(); i > 0; --i)
    if (is_held(blocks[i - 1])) exact.drop(blocks[i - 1]);
  return {};
}

}  // namespace kvasir::kv
