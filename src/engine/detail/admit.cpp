// Admission at a step boundary (SCH-3…6, SCH-20…22).
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/detail/request.h"
#include "engine/engine.h"
#include "sched/policy.h"

namespace kvasir::engine {
namespace {

constexpr std::uint32_t kLeastBranch = 64;  // CACHE-15

}  // namespace

void Engine::admit(StepReport& report) {
  while (sched::may_admit(group_view())) {
    Request& head = *find(*queue_.head());
    if (!start(head)) return;
    queue_.pop();
    rows_.push_back(&head);
    plan_.admit.push_back(head.id);
    ++report.n_admitted;
    head.sink->progress(head.stats.cached_tokens, head.prompt().size());
  }
}

std::string_view Engine::namespace_of(const Request& request) const noexcept {
  return request.options.cache_namespace.empty() ? options_.cache_namespace
                                                 : request.options.cache_namespace;
}

GroupView Engine::group_view() const {
  GroupView view;
  view.queued = static_cast<std::uint32_t>(queue_.size());
  view.max_rows = options_.max_rows;
  view.max_preparation_tokens = options_.max_step_tokens;
  view.is_held = n_holds_ > 0;
  view.is_closed = is_closed_;
  for (const Request* request : rows_) {
    const bool is_preparing =
        request->stage == Stage::preparing || request->stage == Stage::waiting;
    ++(is_preparing ? view.preparing : view.active);
    if (request->stage != Stage::preparing) continue;
    const std::uint64_t remaining = request->prompt().size() - parts_.store->length(*request->row);
    view.preparing_tokens += sched::preparation_tokens(remaining, options_.max_step_tokens);
  }
  const bool has_free_row = view.active + view.preparing < view.max_rows;
  if (queue_.empty() || !has_free_row || view.preparing == 0) return view;
  const Request& head = *find(*queue_.head());
  if (can_ride(head)) return view;  // feeds nothing of its own
  const bool may_reuse = parts_.cache && head.options.prompt_cache && head.owns_state() &&
                         !head.options.prompt_logprobs;
  const std::uint64_t cached =
      may_reuse ? parts_.cache->usable_length(head.prompt(), namespace_of(head)) : 0;
  view.next_tokens = head.prompt().size() - cached;
  return view;
}

// Whether another choice is still feeding the same prompt. Prompt logprobs are reported from the
// start or not at all.
bool Engine::can_ride(const Request& request) const {
  const Request* leader = request.leader ? find(*request.leader) : nullptr;
  if (!leader || leader->stage != Stage::preparing) return false;
  return !request.options.prompt_logprobs || parts_.store->length(*leader->row) == 0;
}

// False: the head does not fit now and waits, unchanged. A row that runs alone is always admitted
// (SCH-20): submission has checked that it fits, and everything cached can go.
bool Engine::start(Request& request) {
  const std::vector<sched::BlockDemand> running = running_demand();
  if (can_ride(request)) {
    if (!budget_allows(running, request)) return false;  // later it takes the prompt from the cache
    request.stage = Stage::waiting;
  } else {
    request.leader.reset();
    if (!request.owns_state()) {
      const auto most = static_cast<std::uint32_t>(request.prompt().size() - 1);
      const std::uint32_t length = std::min(parts_.store->length(*request.options.state), most);
      request.row = request.options.state;
      if (!running.empty() && !budget_allows(running, request)) {
        request.row.reset();
        return false;
      }
      const Status trimmed = parts_.store->trim_to(*request.row, length);
      KVASIR_CHECK(trimmed.has_value()) << "enqueue has checked it";
    } else if (!take_prefix(request, running)) {
      return false;
    }
    plan_snapshots(request);
    request.stats.cached_tokens = parts_.store->length(*request.row);
    request.n_prompt_reported = parts_.store->length(*request.row);
    request.stage = Stage::preparing;
  }
  request.admitted_at = parts_.clock.now();
  request.session.seed_history(request.prompt(), {});
  if (request.options.draft && request.options.n_draft_tokens > 0) {
    Result<std::unique_ptr<DraftSource>> source = request.options.draft->open();
    if (source)
      request.draft = *std::move(source);
    else
      log::warning("draft source not opened: " + source.error().what);
  }
  return true;
}

// Where the prompt leaves what is cached, and every so often, when layers that cannot be resumed
// there would have the next one like it start over (CACHE-15).
void Engine::plan_snapshots(Request& request) const {
  request.boundaries = request.options.snapshot_at;
  const kv::KvStore& store = *parts_.store;
  if (!parts_.cache || !request.options.prompt_cache || store.keeps_every_position()) return;
  const std::uint32_t from = store.length(*request.row);
  const std::uint32_t branch = parts_.cache->shared_length(request.prompt(), namespace_of(request));
  if (branch >= kLeastBranch && branch > from) request.boundaries.push_back(branch);
  const std::uint64_t every = options_.snapshot_every;
  if (every == 0) return;
  const auto& wished = request.boundaries;
  for (std::uint64_t p = (from / every + 1) * every; p < request.prompt().size(); p += every)
    if (std::find(wished.begin(), wished.end(), p) == wished.end())
      request.waypoints.push_back(static_cast<std::uint32_t>(p));
  request.boundaries.insert(request.boundaries.end(), request.waypoints.begin(),
                            request.waypoints.end());
}

// Gives the request a row, from the longest cached prefix there is (SCH-6).
bool Engine::take_prefix(Request& request, std::span<const sched::BlockDemand> running) {
  kv::KvStore& store = *parts_.store;
  const bool may_reuse =
      parts_.cache && request.options.prompt_cache && !request.options.prompt_logprobs;
  if (may_reuse && !running.empty()) {
    // What a hit could spare at most; if that is not enough there is no need to take it.
    const std::uint32_t usable =
        parts_.cache->usable_length(request.prompt(), namespace_of(request));
    std::vector<sched::BlockDemand> rows(running.begin(), running.end());
    add_demand(request, rows);
    for (std::uint32_t pool = 0; pool < store.n_pools(); ++pool)
      rows[running.size() + pool].held =
          store.projected_blocks(pool, usable, options_.max_step_tokens);
    if (!demand_fits(rows)) return false;
  }
  request.row = store.create_row();
  if (may_reuse) {
    if (std::optional<cache::PrefixHit> hit =
            parts_.cache->peek(request.prompt(), namespace_of(request))) {
      store.adopt(*request.row, std::move(hit->state));
      request.retain = std::move(hit->retain);
      request.is_pinning = true;
    }
  }
  // The pin may hold more of the donor than this row reads.
  if (!budget_allows(running, request)) {
    request.unpin();
    if (!running.empty() && !budget_allows(running, request)) {
      store.free_row(*request.row);
      request.row.reset();
      return false;
    }
  }
  if (may_reuse) parts_.cache->count(request.prompt(), namespace_of(request));
  return true;
}

void Engine::add_demand(const Request& request, std::vector<sched::BlockDemand>& out) const {
  const kv::KvStore& store = *parts_.store;
  const std::size_t first = out.size();
  const bool is_converted = request.row && store.length(*request.row) >= store.transition() &&
                            !store.is_due(*request.row);
  for (std::uint32_t pool = 0; pool < store.n_pools(); ++pool) {
    const std::size_t projected =
        store.projected_blocks(pool, request.n_total(), options_.max_step_tokens, is_converted);
    // One block a table, for the copy of a shared tail.
    out.push_back({projected, 0, store.n_tables(pool)});
  }
  if (!request.row) return;
  std::vector<kv::KvBlockRef> blocks;
  store.capture(*request.row).append_blocks(blocks);
  for (const kv::KvBlockRef& block : blocks) ++out[first + block.pool].held;
}

std::vector<sched::BlockDemand> Engine::running_demand() const {
  std::vector<sched::BlockDemand> out;
  for (const Request* request : rows_) add_demand(*request, out);
  return out;
}

bool Engine::demand_fits(std::span<const sched::BlockDemand> rows) const {
  const std::size_t n_pools = parts_.store->n_pools();
  std::vector<sched::BlockDemand> of_pool;
  for (std::size_t pool = 0; pool < n_pools; ++pool) {
    of_pool.clear();
    for (std::size_t i = pool; i < rows.size(); i += n_pools) of_pool.push_back(rows[i]);
    if (!sched::budget_allows(of_pool,
                              parts_.store->available_blocks(static_cast<std::uint32_t>(pool))))
      return false;
  }
  return true;
}

bool Engine::budget_allows(std::span<const sched::BlockDemand> running,
                           const Request& request) const {
  std::vector<sched::BlockDemand> rows(running.begin(), running.end());
  add_demand(request, rows);
  return demand_fits(rows);
}

}  // namespace kvasir::engine
