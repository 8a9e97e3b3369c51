#include "kv/detail/store_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "ops/device.h"

namespace kvasir::kv {

std::unique_ptr<StateBody> StoreCore::new_body() {
  auto body = std::make_unique<StateBody>();
  body->core = this;
  body->tables.resize(geometry.groups.size());
  return body;
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
  std::uint32_t first = 0;
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
// remain, as released ones.
std::uint32_t kept_blocks(const StateTable& table, std::uint32_t p, std::uint32_t block_tokens) {
  const bool holds_any = table.first_position < p;
  return holds_any ? (p + block_tokens - 1) / block_tokens : p / block_tokens;
}

}  // namespace

std::unique_ptr<StateBody> StoreCore::clone_prefix(const StateBody& body, std::uint32_t p) {
  KVASIR_CHECK(!body.in_step && resumable_at(body, p));
  auto out = new_body();
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const StateTable& from = body.tables[g];
    const std::uint32_t kept = kept_blocks(from, p, options.block_tokens);
    out->tables[g].blocks.assign(from.blocks.begin(), from.blocks.begin() + kept);
    out->tables[g].first_position = std::min(from.first_position, p);
  }
  out->length = p;
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    for (const BlockId block : out->tables[g].blocks)
      if (block != kNoBlock) pools[geometry.groups[g].pool].share(block);
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
    const std::uint32_t kept = kept_blocks(table, p, options.block_tokens);
    for (std::size_t i = table.blocks.size(); i > kept; --i) {
      const BlockId block = table.blocks[i - 1];
      if (block != kNoBlock) pools[geometry.groups[g].pool].drop(block);
    }
    table.blocks.resize(kept);
    table.first_position = std::min(table.first_position, p);
  }
  body.length = p;
  return {};
}

void StoreCore::drop_all(StateBody& body) noexcept {
  for (std::size_t g = body.tables.size(); g > 0; --g) {
    StateTable& table = body.tables[g - 1];
    for (std::size_t i = table.blocks.size(); i > 0; --i) {
      const BlockId block = table.blocks[i - 1];
      if (block != kNoBlock) pools[geometry.groups[g - 1].pool].drop(block);
    }
    table.blocks.clear();
  }
  body.length = 0;
}

void StoreCore::release_behind_windows(StateBody& body) noexcept {
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    const GroupGeometry& group = geometry.groups[g];
    StateTable& table = body.tables[g];
    const std::uint32_t end =
        group.layout->first_needed(group.window, body.length) / options.block_tokens;
    for (std::uint32_t i = table.first_position / options.block_tokens; i < end; ++i) {
      if (table.blocks[i] == kNoBlock) continue;
      pools[group.pool].drop(table.blocks[i]);
      table.blocks[i] = kNoBlock;
    }
    table.first_position = std::max(table.first_position, end * options.block_tokens);
  }
}

bool StoreCore::tail_is_shared(const StateBody& body, std::uint32_t group) const noexcept {
  const StateTable& table = body.tables[group];
  if (body.length % options.block_tokens == 0 || table.first_position >= body.length) return false;
  return pools[geometry.groups[group].pool].refs(table.blocks.back()) > 1;
}

void StoreCore::add_needed(const StateBody& body,
                           std::uint32_t n_tokens,
                           std::span<std::size_t> needed) const noexcept {
  const std::uint32_t wanted = blocks_for(std::uint64_t{body.length} + n_tokens);
  for (std::uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const std::size_t appended = wanted - body.tables[g].blocks.size();
    needed[geometry.groups[g].pool] += appended + (tail_is_shared(body, g) ? 1 : 0);
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

KvLayerView StoreCore::layer_view(std::size_t layer) const noexcept {
  const LayerPlace place = geometry.layers[layer];
  const PlanePair& pair = planes[geometry.groups[place.group].pool][place.slot];
  return {.k = pair.k.data(),
          .v = pair.v.data(),
          .type = options.type,
          .n_kv_heads = list[layer].n_kv_heads,
          .head_dim = list[layer].head_dim,
          .block_tokens = options.block_tokens,
          .window = list[layer].window,
          .rows = {}};
}

void StoreCore::copy_slots(std::uint32_t group,
                           BlockId from,
                           BlockId to,
                           std::uint32_t begin,
                           std::uint32_t end) noexcept {
  for (const std::uint32_t layer : geometry.groups[group].layers) {
    const KvLayerView view = layer_view(layer);
    const std::size_t bytes = std::size_t{end - begin} * view.head_dim * geometry.element_bytes;
    for (std::uint32_t head = 0; head < view.n_kv_heads; ++head) {
      const std::size_t source = view.offset(from, head, begin);
      const std::size_t target = view.offset(to, head, begin);
      device.copy(view.k + target, view.k + source, bytes);
      device.copy(view.v + target, view.v + source, bytes);
    }
  }
}

}  // namespace kvasir::kv
