#include "cache/detail/cache_core.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace kvasir::cache {

BlockAccount::BlockAccount(const kv::KvStore& store) : store_(store) {
  for (std::uint32_t p = 0; p < store.n_pools(); ++p)
    counts_.emplace_back(store.total_blocks(p), 0);
}

void BlockAccount::add(const kv::KvState& state) {
  std::vector<kv::KvBlockRef> blocks;
  state.append_blocks(blocks);
  for (const kv::KvBlockRef& block : blocks)
    if (counts_[block.pool][block.block.value]++ == 0) bytes_ += store_.block_bytes(block.pool);
}

void BlockAccount::remove(const kv::KvState& state) {
  std::vector<kv::KvBlockRef> blocks;
  state.append_blocks(blocks);
  for (const kv::KvBlockRef& block : blocks)
    if (--counts_[block.pool][block.block.value] == 0) bytes_ -= store_.block_bytes(block.pool);
}

CacheCore::CacheCore(kv::KvStore& owner,
                     const PrefixCacheOptions& chosen,
                     std::unique_ptr<RetentionPolicy> retention)
    : store(owner), options(chosen), policy(std::move(retention)), account(owner) {}

namespace {

// The usable length of an entry that shares `common` tokens with the prompt (CACHE-2); 0 when it is
// of no use.
std::uint32_t usable(const CacheEntry& entry, std::uint32_t common) {
  if (common == entry.length()) return common;
  if (entry.attachment) return 0;
  const std::uint32_t p = entry.state.resumable_floor(common);
  return p >= entry.state.min_reusable() ? p : 0;
}

}  // namespace

CacheCore::Found CacheCore::find(std::span<const TokenId> prompt, std::string_view ns) const {
  Found best;
  const auto tree = trees.find(ns);
  if (tree == trees.end() || prompt.size() < 2) return best;
  const auto limit = static_cast<std::uint32_t>(prompt.size() - 1);
  for (const RadixTree::Level& level : tree->second->levels(prompt)) {
    const std::uint32_t common = std::min(level.common, limit);
    if (best.length > common) break;  // the rest shares less
    RadixTree::for_each_entry(level, [&](CacheEntry& entry) {
      const std::uint32_t p = usable(entry, common);
      const bool wins = p > best.length || (p == best.length && p > 0 &&
                                            entry.info.last_used > best.entry->info.last_used);
      if (wins) best = {&entry, p};
    });
  }
  return best;
}

CacheEntry& CacheCore::add(std::span<const TokenId> tokens,
                           std::string_view ns,
                           std::unique_ptr<CacheEntry> entry) {
  auto tree = trees.find(ns);
  if (tree == trees.end())
    tree = trees.emplace(std::string(ns), std::make_unique<RadixTree>()).first;
  entry->tree = tree->second.get();
  entry->node = entry->tree->insert(tokens);
  CacheEntry* replaced = std::exchange(entry->node->entry, entry.get());
  if (replaced && replaced->kind == EntryKind::prefix) entry->kind = EntryKind::prefix;
  account.add(entry->state);
  if (entry->attachment) attachment_bytes += entry->attachment->bytes();
  entries.push_back(std::move(entry));
  CacheEntry& added = *entries.back();
  if (replaced) remove(*replaced);
  return added;
}

void CacheCore::supersede_ancestors(CacheEntry& entry) {
  std::vector<CacheEntry*> superseded;
  for (const RadixNode* node = entry.node->parent; node; node = node->parent) {
    CacheEntry* ancestor = node->entry;
    if (ancestor && !ancestor->attachment && !entry.attachment &&
        entry.state.resumable_at(ancestor->length()) && entry.state.serves_all_of(ancestor->state))
      superseded.push_back(ancestor);
  }
  for (CacheEntry* ancestor : superseded) {
    if (ancestor->kind == EntryKind::prefix) entry.kind = EntryKind::prefix;  // it stands for one
    remove(*ancestor);
  }
}

void CacheCore::touch(CacheEntry& entry, std::uint64_t cost) {
  entry.info.cost = cost;
  entry.info.last_used = ++clock;
  ++entry.info.uses;
  policy->accessed(entry.info);
}

void CacheCore::remove(CacheEntry& entry) {
  account.remove(entry.state);
  if (entry.attachment) attachment_bytes -= entry.attachment->bytes();
  if (entry.node->entry == &entry) {  // not when another entry has taken its place
    entry.node->entry = nullptr;
    entry.tree->prune(entry.node);
  }
  std::erase_if(entries, [&](const auto& owned) { return owned.get() == &entry; });
}

void CacheCore::evict(CacheEntry& entry) {
  policy->evicted(entry.info);
  remove(entry);
}

std::vector<CacheEntry*> CacheCore::unpinned() const {
  std::vector<CacheEntry*> out;
  for (const auto& entry : entries)
    if (!entry->pinned()) out.push_back(entry.get());
  return out;
}

CacheEntry* CacheCore::victim_of(std::span<CacheEntry* const> candidates) const {
  std::vector<CacheEntry*> first;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(first),
               [](const CacheEntry* entry) { return entry->kind == EntryKind::waypoint; });
  if (first.empty()) first.assign(candidates.begin(), candidates.end());
  if (first.empty()) return nullptr;
  std::vector<const RetentionEntry*> infos;
  for (const CacheEntry* entry : first) infos.push_back(&entry->info);
  const std::size_t index = policy->victim(infos);
  KVASIR_CHECK(index < first.size());
  return first[index];
}

void CacheCore::evict_to_caps() {
  while (bytes() > options.max_bytes || entries.size() > options.max_entries) {
    CacheEntry* victim = victim_of(unpinned());
    if (!victim) break;
    evict(*victim);
  }
  drop_empty_trees();
}

void CacheCore::drop_empty_trees() {
  std::erase_if(trees, [](const auto& tree) { return tree.second->empty(); });
}

std::vector<std::vector<bool>> CacheCore::blocks_of_pinned() const {
  std::vector<std::vector<bool>> kept;
  for (std::uint32_t p = 0; p < store.n_pools(); ++p) kept.emplace_back(store.total_blocks(p));
  std::vector<kv::KvBlockRef> blocks;
  for (const auto& entry : entries)
    if (entry->pinned()) entry->state.append_blocks(blocks);
  for (const kv::KvBlockRef& block : blocks) kept[block.pool][block.block.value] = true;
  return kept;
}

bool CacheCore::frees(kv::KvBlockRef block, const std::vector<std::vector<bool>>& kept) const {
  const std::uint32_t count = account.count(block);
  return count > 0 && !kept[block.pool][block.block.value] && store.refs(block) == count;
}

}  // namespace kvasir::cache
