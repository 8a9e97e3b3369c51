#include "cache/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/detail/cache_core.h"

namespace kvasir::cache {

Retain::Retain(std::shared_ptr<std::uint32_t> pins) noexcept : pins_(std::move(pins)) { ++*pins_; }

Retain& Retain::operator=(Retain&& other) noexcept {
  Retain moved(std::move(other));
  std::swap(pins_, moved.pins_);
  return *this;
}

void Retain::release() noexcept {
  if (pins_) --*pins_;
  pins_.reset();
}

PrefixCache::PrefixCache(kv::KvStore& store,
                         const PrefixCacheOptions& options,
                         std::unique_ptr<RetentionPolicy> policy) {
  if (!policy) policy = *make_retention_policy("lru");
  core_ = std::make_unique<CacheCore>(store, options, std::move(policy));
  store.set_reclaimer(this);
}

PrefixCache::~PrefixCache() { core_->store.set_reclaimer(nullptr); }

std::optional<PrefixHit> PrefixCache::take(std::span<const TokenId> prompt, std::string_view ns) {
  count(prompt, ns);
  return peek(prompt, ns);
}

void PrefixCache::count(std::span<const TokenId> prompt, std::string_view ns) {
  if (core_->options.max_bytes == 0) return;
  const CacheCore::Found found = core_->find(prompt, ns);
  if (!found.entry) {
    ++core_->misses;
    return;
  }
  core_->touch(*found.entry, found.length);
  ++core_->hits;
  core_->hit_tokens += found.length;
}

std::optional<PrefixHit> PrefixCache::peek(std::span<const TokenId> prompt,
                                           std::string_view ns) const {
  if (core_->options.max_bytes == 0) return std::nullopt;
  const CacheCore::Found found = core_->find(prompt, ns);
  if (!found.entry) return std::nullopt;
  CacheEntry& entry = *found.entry;
  PrefixHit hit;
  hit.length = found.length;
  hit.state = entry.state.clone_prefix(found.length);
  if (found.length == entry.length()) hit.attachment = entry.attachment;
  hit.retain = Retain(entry.pins);
  return hit;
}

std::uint32_t PrefixCache::usable_length(std::span<const TokenId> prompt,
                                         std::string_view ns) const {
  return core_->find(prompt, ns).length;
}

std::uint32_t PrefixCache::shared_length(std::span<const TokenId> prompt,
                                         std::string_view ns) const {
  const auto tree = core_->trees.find(ns);
  if (tree == core_->trees.end() || prompt.empty()) return 0;
  const std::vector<RadixTree::Level> levels = tree->second->levels(prompt);
  if (levels.empty()) return 0;
  return std::min(levels.front().common, static_cast<std::uint32_t>(prompt.size() - 1));
}

Status PrefixCache::put(std::span<const TokenId> tokens,
                        kv::KvState&& state,
                        std::string_view ns,
                        std::shared_ptr<const Attachment> attachment,
                        EntryKind kind) {
  if (!state || tokens.empty() || tokens.size() != state.length())
    return invalid("prefix cache: tokens and state differ in length");
  auto entry = std::make_unique<CacheEntry>();
  entry->state = std::move(state);
  entry->attachment = std::move(attachment);
  entry->pins = std::make_shared<std::uint32_t>(0);
  entry->kind = kind;
  entry->info.bytes = entry->state.bytes() + (entry->attachment ? entry->attachment->bytes() : 0);
  const PrefixCacheOptions& options = core_->options;
  if (options.max_bytes == 0 || options.max_entries == 0 || entry->info.bytes > options.max_bytes)
    return {};
  CacheEntry& added = core_->add(tokens, ns, std::move(entry));
  core_->touch(added, tokens.size());
  core_->supersede_ancestors(added);
  core_->evict_to_caps();
  return {};
}

void PrefixCache::clear() {
  while (!core_->entries.empty()) core_->remove(*core_->entries.back());
  core_->drop_empty_trees();
}

PrefixCacheStats PrefixCache::stats() const noexcept {
  return {.entries = core_->entries.size(),
          .bytes = core_->bytes(),
          .max_bytes = core_->options.max_bytes,
          .hits = core_->hits,
          .misses = core_->misses,
          .hit_tokens = core_->hit_tokens};
}

std::size_t PrefixCache::reclaimable(std::uint32_t pool) const noexcept {
  const auto kept = core_->blocks_of_pinned();
  std::size_t n = 0;
  for (std::uint32_t i = 0; i < core_->account.counts(pool).size(); ++i)
    if (core_->frees({pool, BlockId{i}}, kept)) ++n;
  return n;
}

// Entries that cannot help, because rows or pinned entries share all their blocks, stay.
bool PrefixCache::reclaim(std::span<const std::size_t> wanted) noexcept {
  kv::KvStore& store = core_->store;
  for (std::uint32_t p = 0; p < store.n_pools(); ++p)
    if (store.free_blocks(p) + reclaimable(p) < wanted[p]) return false;
  const auto kept = core_->blocks_of_pinned();
  const auto is_short = [&](std::uint32_t p) { return store.free_blocks(p) < wanted[p]; };
  const auto any_short = [&] {
    for (std::uint32_t p = 0; p < store.n_pools(); ++p)
      if (is_short(p)) return true;
    return false;
  };
  std::vector<CacheEntry*> candidates = core_->unpinned();
  std::vector<kv::KvBlockRef> blocks;
  while (any_short()) {
    CacheEntry* victim = core_->victim_of(candidates);
    if (!victim) return false;
    std::erase(candidates, victim);
    blocks.clear();
    victim->state.append_blocks(blocks);
    const bool helps = std::any_of(blocks.begin(), blocks.end(), [&](const kv::KvBlockRef& block) {
      return is_short(block.pool) && core_->frees(block, kept);
    });
    if (helps) core_->evict(*victim);
  }
  core_->drop_empty_trees();
  return true;
}

std::string PrefixCache::check_invariants() const {
  std::size_t found = 0, attachments = 0;
  for (const auto& [ns, tree] : core_->trees) {
    if (tree->empty()) return "an empty tree is kept";
    std::vector<std::pair<const RadixNode*, std::size_t>> open{{&tree->root(), 0}};
    while (!open.empty()) {
      const auto [node, depth] = open.back();
      open.pop_back();
      const bool useless = node->parent && !node->entry && node->children.size() < 2;
      if (useless) return "a node without purpose is kept";
      if (node->entry) ++found;
      if (node->entry && (node->entry->length() != depth || node->entry->node != node ||
                          node->entry->tree != tree.get()))
        return "an entry is not where its tokens end";
      for (const auto& [token, child] : node->children) {
        if (child->edge.empty() || child->edge.front() != token || child->parent != node)
          return "an edge is broken";
        open.push_back({child.get(), depth + child->edge.size()});
      }
    }
  }
  if (found != core_->entries.size()) return "entries and trees differ";
  BlockAccount again(core_->store);
  for (const auto& entry : core_->entries) {
    again.add(entry->state);
    if (entry->attachment) attachments += entry->attachment->bytes();
  }
  for (std::uint32_t p = 0; p < core_->store.n_pools(); ++p)
    if (again.counts(p) != core_->account.counts(p)) return "block counts differ";
  if (again.bytes() != core_->account.bytes() || attachments != core_->attachment_bytes)
    return "bytes differ";
  return "";
}

}  // namespace kvasir::cache
