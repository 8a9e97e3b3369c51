#include "kv/kv_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/detail/store_core.h"
#include "kv/kv_scheme.h"
#include "ops/device.h"

namespace kvasir::kv {
namespace {

Result<std::vector<PlanePair>> allocate_planes(ops::Device& device,
                                               const PoolGeometry& pool,
                                               std::uint32_t n_blocks) {
  std::vector<PlanePair> out(pool.layers_per_block);
  for (PlanePair& pair : out) {
    KVASIR_TRY(pair.k, device.allocate(n_blocks * pool.plane_block_bytes));
    KVASIR_TRY(pair.v, device.allocate(n_blocks * pool.plane_block_bytes));
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<KvStore>> KvStore::make(ops::Device& device,
                                               const KvList& list,
                                               const KvStoreOptions& options) {
  KVASIR_TRY_DO(check_block_tokens(options.block_tokens));
  if (options.type != DType::f32 && options.type != DType::bf16)
    return unsupported("kv type " + std::string(name_of(options.type)));
  KVASIR_TRY(KvGeometry geometry,
             KvGeometry::make(list, options.block_tokens, size_of(options.type)));
  KVASIR_TRY(const std::vector<std::uint32_t> n_blocks,
             geometry.divide(options.budget_bytes, options.split_tokens, options.split_chunk));
  auto core = std::make_unique<StoreCore>(device, list, options, std::move(geometry));
  for (std::size_t p = 0; p < n_blocks.size(); ++p) {
    core->pools.emplace_back(n_blocks[p]);
    KVASIR_TRY(auto planes, allocate_planes(device, core->geometry.pools[p], n_blocks[p]));
    core->planes.push_back(std::move(planes));
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

std::string KvStore::signature(std::size_t layer) const {
  const GroupGeometry& group = core_->geometry.groups[core_->geometry.layers.at(layer).group];
  return group.layout->signature(core_->list[layer], name_of(core_->options.type));
}

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
    if (found == core_->rows.end() || found->second->in_step) return false;
    core_->add_needed(*found->second, span.n_tokens, needed);
  }
  for (std::uint32_t p = 0; p < needed.size(); ++p)
    if (needed[p] > available_blocks(p)) return false;
  return true;
}

std::size_t KvStore::bytes_per_token() const noexcept {
  std::size_t total = 0;
  for (const KvLayerSpec& layer : core_->list)
    total += 2 * std::size_t{layer.n_kv_heads} * layer.head_dim * core_->geometry.element_bytes;
  return total;
}

std::size_t KvStore::projected_blocks(std::uint32_t pool,
                                      std::uint64_t n_tokens,
                                      std::uint32_t max_chunk) const noexcept {
  return core_->geometry.projected_blocks(pool, n_tokens, max_chunk);
}

std::size_t KvStore::projected_bytes(std::uint64_t n_tokens,
                                     std::uint32_t max_chunk) const noexcept {
  std::size_t total = 0;
  for (std::uint32_t p = 0; p < n_pools(); ++p)
    total += projected_blocks(p, n_tokens, max_chunk) * block_bytes(p);
  return total;
}

bool KvStore::fits(std::uint64_t n_tokens, std::uint32_t max_chunk) const noexcept {
  for (std::uint32_t p = 0; p < n_pools(); ++p)
    if (projected_blocks(p, n_tokens, max_chunk) > total_blocks(p)) return false;
  return true;
}

std::uint32_t KvStore::n_pools() const noexcept {
  return static_cast<std::uint32_t>(core_->pools.size());
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
