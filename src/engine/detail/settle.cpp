// After the commit: rows move on, prompts and finished states are published, ended requests leave
// (EXE-20…24, CACHE-8).
#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/log.h"
#include "engine/detail/request.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

double milliseconds(Clock::Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// Tells the source what a decode round kept (SPEC-2) and what it has not seen yet (SPEC-3).
void tell_draft(Request& request, const RowWork& work) {
  const std::size_t n_drafts = request.drafts.size();
  const std::span<const TokenId> emitted = request.emitted;
  std::vector<TokenId>
      committed;  // without gaps: a tail source has not been told of the prompt's last token
  const std::uint64_t n_committed = request.prompt().size() + emitted.size() - 1;
  for (; request.n_draft_told < n_committed; ++request.n_draft_told)
    committed.push_back(request.token_at(request.n_draft_told));
  const Status told = request.draft->accept(committed, {});
  if (!told) {
    log::warning("draft source dropped: " + told.error().what);
    request.draft.reset();
    return;
  }
  if (n_drafts > 0) {
    const bool is_all_accepted = work.keep == n_drafts + 1;
    const std::span<const TokenId> unseen = emitted.last(is_all_accepted ? 2 : 1);
    request.draft_feed.assign(unseen.begin(), unseen.end());
  } else {
    request.draft_feed.push_back(emitted.back());
  }
}

void prime_draft(Request& request) {
  const std::span<const TokenId> prompt = request.prompt();
  const bool is_tail = request.options.draft->priming() == DraftPriming::tail;
  request.n_draft_told = prompt.size() - (is_tail ? 1 : 0);
  if (const Status told = request.draft->accept(prompt.first(request.n_draft_told), {}); !told) {
    log::warning("draft source dropped: " + told.error().what);
    request.draft.reset();
    return;
  }
  request.draft_feed.clear();
  if (is_tail) request.draft_feed.push_back(prompt.back());
  if (!request.emitted.empty()) request.draft_feed.push_back(request.emitted.back());
}

}  // namespace

void Engine::advance_rows(StepFrame& frame) {
  ++totals_.steps;
  for (RowWork& work : frame.work) {
    if (!work.span || !work.request) continue;  // riders move on with their leader
    Request& request = *work.request;
    ++request.stats.steps;
    const std::uint64_t n_tokens = work.end - work.begin;
    if (work.kind == SpanKind::prefill) {
      totals_.prefill_tokens += n_tokens;
      if (work.keep > 0) advance_prefill(work);
    } else if (work.kind == SpanKind::completion) {
      request.stage = Stage::active;  // nothing is left to feed
      request.is_first_unforwarded = false;
    } else {
      if (work.keep > 0) publish_at_transition(request);
      ++totals_.decode_tokens;
      totals_.draft_tokens += request.drafts.size();
      request.stats.draft_tokens += request.drafts.size();
      request.stats.draft_accepted += work.keep > 0 ? work.keep - 1 : 0;
      if (request.draft && !request.end) tell_draft(request, work);
    }
  }
}

void Engine::advance_prefill(RowWork& work) {
  Request& request = *work.request;
  const bool is_alive = !request.end || std::holds_alternative<Completed>(*request.end);
  const auto ends_at = [&](const std::vector<std::uint32_t>& positions) {
    return std::find(positions.begin(), positions.end(), work.end) != positions.end();
  };
  const bool is_boundary = ends_at(request.boundaries);
  const bool is_prompt_done = work.end == request.prompt().size();
  if (!is_prompt_done) report_prompt(request, work.end);
  if (is_alive && (is_boundary || (is_prompt_done && !request.end)))
    publish(request, work.end,
            ends_at(request.waypoints) ? cache::EntryKind::waypoint : cache::EntryKind::prefix);
  else
    publish_at_transition(request);
  if (!is_prompt_done) return;
  fork_choices(request);
  request.stage = Stage::active;
  if (request.draft && !request.end) prime_draft(request);
  // The consumer had enough after the first token, and the state is the caller's: that token's KV
  // is still owed.
  const bool is_early_return =
      request.is_stopped_by_sink && request.is_first_unforwarded && !request.owns_state();
  if (is_early_return && !cancel_reason(request)) request.stage = Stage::completing;
}

void Engine::report_prompt(const Request& leader, std::uint64_t n_fed) const noexcept {
  for (Request* choice : rows_) {
    if (choice == &leader || choice->leader == leader.id)
      choice->sink->progress(n_fed, leader.prompt().size());
  }
}

// Every choice that rode on this prompt goes on with its own row, sharing the prompt's blocks.
void Engine::fork_choices(Request& leader) {
  for (Request* choice : rows_) {
    if (choice->stage != Stage::waiting || choice->leader != leader.id) continue;
    choice->stage = Stage::active;
    choice->leader.reset();
    choice->row = parts_.store->fork_row(*leader.row);
    choice->stats.cached_tokens = leader.stats.cached_tokens;
    ++choice->stats.steps;
    if (choice->draft && !choice->end) prime_draft(*choice);
  }
}

// Shares what the row has of its first tokens (CACHE-8).
void Engine::publish(const Request& request, std::uint64_t n_tokens, cache::EntryKind kind) {
  if (!parts_.cache || !request.options.prompt_cache) return;
  if (parts_.store->is_foreign(*request.row)) return;  // KV-19
  std::vector<TokenId> tokens;
  for (std::uint64_t i = 0; i < n_tokens; ++i) tokens.push_back(request.token_at(i));
  const Status kept = parts_.cache->put(tokens, parts_.store->capture(*request.row),
                                        namespace_of(request), nullptr, kind);
  KVASIR_CHECK(kept.has_value()) << "a committed row disagrees with its tokens";
}

// The exact state just before it converts: encoded state serves no shorter prefix (KV-43).
void Engine::publish_at_transition(const Request& request) {
  const std::uint64_t length = parts_.store->length(*request.row);
  if (length == parts_.store->transition() && !request.end) publish(request, length);
}

void Engine::settle(StepReport& report) {
  ending_.clear();
  for (Request* request : rows_) {
    if (request->is_over()) ending_.push_back(request);
  }
  for (const RequestId id : queue_.waiting()) {
    if (Request* request = find(id); request->is_over()) ending_.push_back(request);
  }
  for (Request* request : ending_) {
    plan_.evict.push_back(request->id);
    ++report.n_ended;
    finish(*request);
  }
}

void Engine::finish(Request& request) {
  kv::KvStore& store = *parts_.store;
  drop_from_steps(request);
  Outcome outcome{*std::move(request.end), request.stats, request.seed, {}};
  outcome.stats.generated_tokens = request.emitted.size();
  if (request.stage != Stage::queued) {
    const Clock::Duration now = parts_.clock.now();
    outcome.stats.is_admitted = true;
    outcome.stats.queue_ms = milliseconds(request.admitted_at - request.queued_at);
    const double row_seconds = milliseconds(now - request.admitted_at) / 1e3;
    totals_.row_seconds += (row_seconds - totals_.row_seconds) / (totals_.row_seconds > 0 ? 8 : 1);
    outcome.stats.prefill_ms =
        milliseconds(request.first_token_at.value_or(now) - request.admitted_at);
    outcome.stats.decode_ms = milliseconds(now - request.first_token_at.value_or(now));
  }
  const std::uint64_t length =
      request.row ? store.length(*request.row) - request.n_discarded : std::uint64_t{0};
  outcome.stats.cache_tokens = length;
  hand_over(request);
  if (request.row) {
    const std::uint64_t n_prompt = request.prompt().size();
    if (length > n_prompt) {
      const auto end = request.emitted.begin() + static_cast<std::ptrdiff_t>(length - n_prompt);
      outcome.forwarded.assign(request.emitted.begin(), end);
    }
    if (!request.owns_state()) {
      // Handed back below.
    } else if (outcome.completed() && parts_.cache && request.options.prompt_cache &&
               length >= n_prompt) {
      std::vector<TokenId> tokens = request.prompt();
      tokens.insert(tokens.end(), outcome.forwarded.begin(), outcome.forwarded.end());
      const Status kept =
          parts_.cache->put(tokens, store.detach_row(*request.row), namespace_of(request));
      KVASIR_CHECK(kept.has_value()) << "a finished row disagrees with its tokens (EXE-24)";
    } else {
      store.free_row(*request.row);
    }
  }
  request.unpin();
  if (request.options.state) states_[*request.options.state] = false;
  queue_.remove(request.id);
  std::erase(rows_, &request);
  const std::unique_ptr<Sink> sink = std::move(request.sink);
  requests_.erase(request.id);
  sink->finish(std::move(outcome));
}

// A prompt that several choices wait for goes on with the next of them when the first leaves.
void Engine::hand_over(Request& leader) {
  if (leader.stage != Stage::preparing || !leader.row) return;
  Request* heir = nullptr;
  for (Request* choice : rows_) {
    if (choice->stage != Stage::waiting || choice->leader != leader.id || choice->end) continue;
    if (heir) {
      choice->leader = heir->id;
      continue;
    }
    heir = choice;
    heir->row = std::exchange(leader.row, std::nullopt);
    heir->retain = std::move(leader.retain);
    heir->is_pinning = std::exchange(leader.is_pinning, false);
    heir->stats.cached_tokens = leader.stats.cached_tokens;
    heir->boundaries = std::move(leader.boundaries);
    heir->waypoints = std::move(leader.waypoints);
    heir->stage = Stage::preparing;
    heir->leader.reset();
  }
  if (!heir) return;
  for (const RequestId id : queue_.waiting()) {
    if (Request* choice = find(id); choice->leader == leader.id) choice->leader = heir->id;
  }
}

}  // namespace kvasir::engine
