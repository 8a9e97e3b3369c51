#include "kv/kv_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/detail/store_core.h"
#include "kv/kv_scheme.h"
#include "ops/device.h"

namespace kvasir::kv {
Result<std::unique_ptr<KvStore>> KvStore::make(ops::Device& device,
                                               const KvList& list,
                                               const KvStoreOptions& options) {
  KVASIR_TRY_DO(check_block_tokens(options.block_tokens));
  KVASIR_TRY(KvGeometry geometry, KvGeometry::make(list, options.scheme, options.block_tokens));
  KVASIR_TRY(std::vector<KvLayerForm> forms, forms_of(options.scheme, list));
  KVASIR_TRY(const std::vector<std::uint32_t> n_blocks,
             geometry.divide(options.budget_bytes, options.split_tokens, options.split_chunk));
  auto core =
      std::make_unique<StoreCore>(device, list, options, std::move(geometry), std::move(forms));
  for (std::uint32_t p = 0; p < n_blocks.size(); ++p) {
    core->pools.emplace_back(n_blocks[p]);
    KVASIR_TRY_DO(core->allocate_planes(p, n_blocks[p]));
  }
  return std::unique_ptr<KvStore>(new KvStore(std::move(core)));
}

KvStore::KvStore(std::unique_ptr<StoreCore> core) noexcept : core_(std::move(core)) {}

KvStore::~KvStore() {
  KVASIR_CHECK(core_->first_state == nullptr) << "a KvState outlives its store";
  KVASIR_CHECK(core_->open_steps.empty()) << "a KvStep outlives its store";
}

const KvList& KvStore::kv_list() const noexcept { return core_->list; }
const KvStoreOptions& KvStore::options() const noexcept { return core_->options; }
void KvStore::set_reclaimer(KvReclaimer* reclaimer) noexcept { core_->reclaimer = reclaimer; }

std::string KvStore::signature(std::size_t layer, std::uint32_t length) const {
  const GroupGeometry& group = core_->geometry.groups[core_->geometry.layers.at(layer).group];
  const bool is_encoded =
      group.is_born_encoded() || (group.converts() && length > core_->geometry.transition);
  return core_->signature(layer, is_encoded);
}

std::uint64_t KvStore::transition() const noexcept {
  return core_->converts() ? core_->geometry.transition : kNeverEncoded;
}
bool KvStore::is_foreign(KvRowId row) const noexcept { return core_->row(row).is_foreign; }
bool KvStore::is_due(KvRowId row) const noexcept { return core_->is_due(core_->row(row)); }
Status KvStore::convert(KvRowId row) { return core_->convert(core_->idle_row(row)); }

KvRowId KvStore::create_row() {
  const KvRowId id{core_->next_row};
  KVASIR_CHECK(core_->rows.emplace(id, core_->new_body()).second);
  ++core_->next_row;
  return id;
}

void KvStore::free_row(KvRowId row) noexcept {
  core_->drop_all(core_->idle_row(row));
  core_->rows.erase(row);
}

std::uint32_t KvStore::length(KvRowId row) const noexcept { return core_->row(row).length; }

void KvStore::adopt(KvRowId row, KvState&& state) {
  StateBody& body = core_->idle_row(row);
  KVASIR_CHECK(body.length == 0 && state && state.body_->core == core_.get());
  core_->unlink(*state.body_);
  body.length = state.body_->length;
  body.min_reusable = state.body_->min_reusable;
  body.is_foreign = state.body_->is_foreign;
  body.tables = std::move(state.body_->tables);
  state.body_.reset();
}

KvState KvStore::capture(KvRowId row) const {
  const StateBody& body = core_->idle_row(row);
  return KvState(core_->clone_prefix(body, body.length));
}

KvState KvStore::detach_row(KvRowId row) noexcept {
  core_->idle_row(row);
  auto node = core_->rows.extract(row);
  return KvState(std::move(node.mapped()));
}

KvRowId KvStore::fork_row(KvRowId row) {
  KvState shared = capture(row);
  const KvRowId fork = create_row();
  adopt(fork, std::move(shared));
  return fork;
}

bool KvStore::resumable_at(KvRowId row, std::uint32_t p) const noexcept {
  return core_->resumable_at(core_->idle_row(row), p);
}

bool KvStore::keeps_every_position() const noexcept {
  const auto& groups = core_->geometry.groups;
  return std::none_of(groups.begin(), groups.end(), [](const GroupGeometry& group) {
    return group.window > 0 || group.holds_state();
  });
}

Status KvStore::trim_to(KvRowId row, std::uint32_t p) {
  return core_->trim_to(core_->idle_row(row), p);
}

Result<KvStep> KvStore::reserve(std::span<const RowSpan> spans) {
  auto body = std::make_unique<StepBody>(*core_);
  KVASIR_TRY_DO(body->open_rows(spans));
  std::vector<std::size_t> needed(core_->pools.size());
  for (const StagedRow& row : body->rows) core_->add_needed(*row.body, row.n_tokens, needed);
  KVASIR_TRY_DO(core_->make_room(needed));
  body->stage_rows();
  body->make_views();
  return KvStep(std::move(body));
}

bool KvStore::can_reserve(std::span<const RowSpan> spans) const {
  std::vector<std::size_t> needed(core_->pools.size());
  for (const RowSpan& span : spans) {
    const auto found = core_->rows.find(span.row);
    if (found == core_->rows.end() || !StepBody::check_row(*core_, *found->second, span))
      return false;
    const auto is_same = [&](const RowSpan& other) { return other.row == span.row; };
    if (std::count_if(spans.begin(), spans.end(), is_same) > 1) return false;
    core_->add_needed(*found->second, span.n_tokens, needed);
  }
  for (std::uint32_t p = 0; p < needed.size(); ++p)
    if (needed[p] > available_blocks(p)) return false;
  return true;
}

std::size_t KvStore::bytes_per_token() const noexcept { return core_->geometry.bytes_per_token(); }

std::size_t KvStore::budget_for(std::uint64_t n_tokens, std::uint32_t max_chunk) const {
  const KvStoreOptions& o = core_->options;
  return core_->geometry.budget_for(n_tokens, max_chunk, o.split_tokens, o.split_chunk);
}

std::size_t KvStore::projected_blocks(std::uint32_t pool,
                                      std::uint64_t n_tokens,
                                      std::uint32_t max_chunk,
                                      bool is_converted) const noexcept {
  return core_->geometry.projected_blocks(pool, n_tokens, max_chunk, is_converted);
}

std::size_t KvStore::projected_bytes(std::uint64_t n_tokens,
                                     std::uint32_t max_chunk) const noexcept {
  return core_->geometry.projected_bytes(n_tokens, max_chunk);
}

bool KvStore::fits(std::uint64_t n_tokens, std::uint32_t max_chunk) const noexcept {
  for (std::uint32_t p = 0; p < n_pools(); ++p)
    if (projected_blocks(p, n_tokens, max_chunk) > total_blocks(p)) return false;
  return true;
}

std::uint32_t KvStore::n_pools() const noexcept {
  return static_cast<std::uint32_t>(core_->pools.size());
}
std::size_t KvStore::n_tables(std::uint32_t pool) const noexcept {
  return core_->geometry.pools[pool].n_groups;
}
std::size_t KvStore::block_bytes(std::uint32_t pool) const noexcept {
  return core_->geometry.pools[pool].block_bytes();
}
std::size_t KvStore::total_blocks(std::uint32_t pool) const noexcept {
  return core_->pools[pool].n_blocks();
}
std::size_t KvStore::free_blocks(std::uint32_t pool) const noexcept {
  return core_->pools[pool].n_free();
}
std::size_t KvStore::available_blocks(std::uint32_t pool) const noexcept {
  return free_blocks(pool) + (core_->reclaimer ? core_->reclaimer->reclaimable(pool) : 0);
}

std::size_t KvStore::total_bytes() const noexcept {
  std::size_t total = 0;
  for (std::uint32_t p = 0; p < n_pools(); ++p) total += total_blocks(p) * block_bytes(p);
  return total;
}
std::size_t KvStore::used_bytes() const noexcept {
  std::size_t total = 0;
  for (std::uint32_t p = 0; p < n_pools(); ++p) total += used_blocks(p) * block_bytes(p);
  return total;
}
std::size_t KvStore::available_bytes() const noexcept {
  std::size_t total = 0;
  for (std::uint32_t p = 0; p < n_pools(); ++p) total += available_blocks(p) * block_bytes(p);
  return total;
}

std::uint32_t KvStore::refs(KvBlockRef block) const noexcept {
  return core_->pools[block.pool].refs(block.block);
}

}  // namespace kvasir::kv
