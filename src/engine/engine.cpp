#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/detail/request.h"

namespace kvasir::engine {
namespace {

constexpr std::uint32_t kMaxDrafts = 64;  // SPEC-41
constexpr double kStepsOfMean = 32;

// Longest row that the store holds alone and the model allows; store.fits is monotone.
std::uint64_t longest_context(const kv::KvStore& store,
                              std::uint64_t limit,
                              std::uint32_t max_chunk) {
  std::uint64_t low = 0;
  std::uint64_t high = limit + 1;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (store.fits(middle, max_chunk) ? low : high) = middle;
  }
  return low;
}

// EXE-41, EXE-45: an embedding request runs its prompt and nothing else.
Status suit_method(OutputKind output, std::uint32_t n_choices, GenerateOptions& options) {
  if (output == OutputKind::hidden && !options.hidden) return unsupported(std::string(kNoText));
  if (!options.hidden) return {};
  if (output != OutputKind::hidden) return unsupported(std::string(kNoEmbeddings));
  if (n_choices > 1 || options.state)
    return invalid("an embedding request has one choice and no state");
  options.max_tokens = 0;
  options.prompt_cache = false;
  options.prompt_logprobs.reset();
  options.constraint.reset();
  options.draft = nullptr;
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(EngineParts parts, EngineOptions options) {
  KVASIR_CHECK(parts.store != nullptr) << "an engine needs a KV store";
  KVASIR_TRY(
      sched::StepPlanner planner,
      sched::StepPlanner::make({options.max_rows, options.max_step_tokens, options.prefill_share}));
  if (options.max_step_tokens > parts.executor.max_step_tokens())
    return invalid("--max-step-tokens is above the executor's " +
                   std::to_string(parts.executor.max_step_tokens()));
  const std::uint64_t model_limit = parts.executor.max_positions();
  if (options.context_length > model_limit)
    return invalid("context length " + std::to_string(options.context_length) +
                   " exceeds the model's " + std::to_string(model_limit));
  const std::uint64_t limit = options.context_length > 0 ? options.context_length : model_limit;
  const std::uint64_t context = longest_context(*parts.store, limit, options.max_step_tokens);
  if (context == 0) return Error{Errc::capacity, "the kv budget leaves no room for any context"};
  const kv::KvStore* store = parts.store.get();
  ContextLimit context_limit(context, store->total_bytes(),
                             [store, chunk = options.max_step_tokens](std::uint64_t n) {
                               return std::uint64_t{store->budget_for(n, chunk)};
                             });
  return std::unique_ptr<Engine>(new Engine(std::move(parts), std::move(options),
                                            std::move(planner), std::move(context_limit)));
}

Engine::Engine(EngineParts parts,
               EngineOptions options,
               sched::StepPlanner planner,
               ContextLimit limit)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      planner_(std::move(planner)),
      queue_(options_.queue_limit),
      context_limit_(std::move(limit)),
      current_(std::make_unique<StepFrame>()),
      next_(std::make_unique<StepFrame>()) {
  if (options_.n_sampling_threads > 1)
    sampling_pool_ = std::make_unique<ThreadPool>(options_.n_sampling_threads);
}

Engine::~Engine() {
  cancel_all(CancelReason::engine_closed);
  StepReport report;
  drop_ended();
  settle(report);
  drain();
}

PreparedRequest::PreparedRequest(std::vector<std::unique_ptr<Request>> choices) noexcept
    : choices_(std::move(choices)) {}
PreparedRequest::PreparedRequest(PreparedRequest&&) noexcept = default;
PreparedRequest& PreparedRequest::operator=(PreparedRequest&&) noexcept = default;
PreparedRequest::~PreparedRequest() = default;

std::vector<RequestId> PreparedRequest::ids() const {
  std::vector<RequestId> out;
  for (const auto& choice : choices_) out.push_back(choice->id);
  return out;
}

Result<PreparedRequest> Engine::prepare(GenerateOptions options, std::uint32_t n_choices) const {
  const std::uint32_t vocab = parts_.executor.vocab_size();
  if (n_choices == 0) return invalid("n must be at least 1");
  if (options.state && n_choices > 1) return invalid("a caller's state serves one choice");
  KVASIR_TRY_DO(suit_method(parts_.executor.output(), n_choices, options));
  if (options.prompt.empty()) return invalid("prompt must not be empty");
  for (const TokenId token : options.prompt) {
    if (token >= vocab)
      return invalid("prompt token id " + std::to_string(token) + " is out of range");
  }
  const std::uint64_t n_prompt = options.prompt.size();
  KVASIR_TRY_DO(sched::next_prefill_span({.length = n_prompt,
                                          .position = 0,
                                          .chunk = options.prefill_chunk,
                                          .budget = 1,
                                          .snapshot_at = options.snapshot_at}));
  const std::uint64_t max_tokens =
      context_limit_.resolve_max_tokens(n_prompt, options.max_tokens, options.default_max_tokens);
  if (std::optional<Refusal> refusal = context_limit_.refuse(n_prompt, max_tokens))
    return Error{Errc::invalid_argument, std::move(refusal->message), refusal->code};
  if (!options.eos_ids) options.eos_ids = options_.eos_ids;
  std::uint64_t seed = 0;
  if (options.sampling.seed) {
    seed = *options.sampling.seed;
  } else {
    KVASIR_TRY(seed, sampling::system_seed());
  }
  std::vector<std::unique_ptr<Request>> choices;
  for (std::uint32_t i = 0; i < n_choices; ++i) {
    KVASIR_TRY(sampling::SamplingSession session,
               sampling::SamplingSession::make(
                   options.sampling, {vocab, *options.eos_ids, options_.newline_ids, seed + i}));
    const RequestId id{next_id_.fetch_add(1, std::memory_order_relaxed)};
    auto request = std::make_unique<Request>(id, options, std::move(session));
    request->max_tokens = max_tokens;
    request->seed = seed + i;
    request->stats.prompt_tokens = n_prompt;
    if (i > 0) request->leader = choices.front()->id;
    if (options.constraint) request->constraint = options.constraint->clone();
    choices.push_back(std::move(request));
  }
  return PreparedRequest(std::move(choices));
}

Status Engine::enqueue(PreparedRequest&& request, std::vector<std::unique_ptr<Sink>>&& sinks) {
  KVASIR_CHECK(sinks.size() == request.size()) << "one sink a choice";
  if (is_closed_) return Error{Errc::cancelled, "the engine is closed", "engine_closed"};
  if (!queue_.has_room(request.size()))
    return Error{Errc::capacity,
                 "the queue of " + std::to_string(options_.queue_limit) + " requests is full",
                 "queue_full"};
  const Request& first = *request.choices_.front();
  if (first.options.state) {
    const auto state = states_.find(*first.options.state);
    if (state == states_.end() || state->second) return invalid("state is unknown or in use");
    if (!parts_.store->resumable_at(
            state->first, std::min(parts_.store->length(state->first),
                                   static_cast<std::uint32_t>(first.prompt().size() - 1))))
      return invalid("state must leave a prompt token to feed");
    state->second = true;
  }
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    std::unique_ptr<Request>& choice = request.choices_[i];
    choice->sink = std::move(sinks[i]);
    choice->queued_at = parts_.clock.now();
    const RequestId id = choice->id;
    requests_.emplace(id, std::move(choice));
    const Status queued = queue_.push(id);
    KVASIR_CHECK(queued.has_value()) << "room was checked";
    requests_[id]->sink->queued();
  }
  return {};
}

Result<RequestId> Engine::submit(GenerateOptions options, std::unique_ptr<Sink> sink) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(sink));
  KVASIR_TRY(const std::vector<RequestId> ids,
             submit_choices(std::move(options), std::move(sinks)));
  return ids.front();
}

Result<std::vector<RequestId>> Engine::submit_choices(GenerateOptions options,
                                                      std::vector<std::unique_ptr<Sink>> sinks) {
  KVASIR_TRY(PreparedRequest request,
             prepare(std::move(options), static_cast<std::uint32_t>(sinks.size())));
  std::vector<RequestId> ids = request.ids();
  KVASIR_TRY_DO(enqueue(std::move(request), std::move(sinks)));
  return ids;
}

void Engine::cancel(RequestId request, CancelReason reason) noexcept {
  Request* found = find(request);
  if (found && !found->cancelled) found->cancelled = reason;
}

void Engine::cancel_all(CancelReason reason) noexcept {
  for (auto& [id, request] : requests_) {
    if (!request->cancelled) request->cancelled = reason;
  }
}

void Engine::fail_all(const Error& error) {
  for (auto& [id, request] : requests_) request->fail("engine_failed", error.what);
  StepReport report;
  settle(report);
}

void Engine::release_hold() noexcept {
  KVASIR_CHECK(n_holds_ > 0) << "nobody holds";
  --n_holds_;
}

KvRowId Engine::create_state() {
  const KvRowId state = parts_.store->create_row();
  states_.emplace(state, false);
  return state;
}

Result<KvRowId> Engine::import_state(const kv::KvPlanes& planes) {
  KVASIR_TRY(kv::KvState state, parts_.store->restore(planes, kv::KvOrigin::foreign));
  const KvRowId row = create_state();
  parts_.store->adopt(row, std::move(state));
  return row;
}

Status Engine::free_state(KvRowId state) {
  const auto found = states_.find(state);
  if (found == states_.end() || found->second) return invalid("state is unknown or in use");
  states_.erase(found);
  parts_.store->free_row(state);
  return {};
}

std::uint32_t Engine::state_length(KvRowId state) const noexcept {
  return parts_.store->length(state);
}

Request* Engine::find(RequestId id) const noexcept {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

StepReport Engine::step() {
  StepReport report;
  plan_.clear();
  drop_ended();
  settle(report);
  admit(report);
  report.wake_at = plan_.wake_at;
  drain();
  const Clock::Duration began = parts_.clock.now();
  const FloatModeScope float_mode;  // the numerics contract, whosever thread this is
  struct Rollback {                 // should memory run out
    Engine* engine;
    ~Rollback() {
      if (engine) engine->forget_steps();
    }
  } rollback{this};
  Status done;
  if (!current_->is_on_its_way) {
    propose_drafts();
    make_plan();
    report.is_idle = plan_.empty();
    if (plan_.empty()) return report;
    done = begin_step(report);
  }
  if (done) {
    run_ahead();
    done = complete_step(report);
  }
  if (!done) {
    abort_steps(done.error());
    report.failure = std::move(done).error();
  }
  rollback.engine = nullptr;
  count_step(*current_, std::chrono::duration<double>(parts_.clock.now() - began).count());
  std::swap(current_, next_);
  settle(report);
  return report;
}

void Engine::count_step(const StepFrame& frame, double seconds) {
  const bool has_prefill =
      std::any_of(frame.rows.begin(), frame.rows.end(),
                  [](const PlannedRow& row) { return row.kind == SpanKind::prefill; });
  (has_prefill ? totals_.prefill_steps : totals_.decode_steps).add(seconds);
  if (!options_.step_bytes) return;
  row_ends_.clear();
  for (const PlannedRow& row : frame.rows) row_ends_.push_back(static_cast<std::uint32_t>(row.end));
  const std::uint64_t bytes = options_.step_bytes(frame.tokens.size(), row_ends_);
  totals_.step_bytes += bytes;
  if (has_prefill || !(seconds > 0)) return;
  const double speed = static_cast<double>(bytes) / seconds;
  double& mean = totals_.decode_bytes_per_second;
  mean += (speed - mean) / (mean > 0 ? kStepsOfMean : 1);
}

std::optional<CancelReason> Engine::cancel_reason(const Request& request) const noexcept {
  if (request.cancelled) return request.cancelled;
  if (const auto reason = request.options.cancellation.reason()) return reason;
  if (request.options.deadline && parts_.clock.now() >= *request.options.deadline)
    return CancelReason::deadline;
  return std::nullopt;
}

// When a waiting request has waited long enough (SCH-40, SCH-41).
std::optional<Clock::Duration> Engine::patience_of(const Request& request) const noexcept {
  std::optional<Clock::Duration> end = request.options.deadline;
  if (options_.queue_timeout && request.stage == Stage::queued) {
    const Clock::Duration timeout = request.queued_at + *options_.queue_timeout;
    end = std::min(end.value_or(timeout), timeout);
  }
  return end;
}

void Engine::drop_ended() {
  const Clock::Duration now = parts_.clock.now();
  for (auto& [id, request] : requests_) {
    const std::optional<Clock::Duration> patience = patience_of(*request);
    const auto reason = cancel_reason(*request);
    const bool is_waiting = request->stage == Stage::queued;
    if (is_waiting && patience && now >= *patience &&
        reason.value_or(CancelReason::deadline) == CancelReason::deadline) {
      request->end_with(Failed{"queue_timeout", "waited too long for a free row", {}});
    } else if (reason) {
      request->end_with(Cancelled{*reason});
    } else if (is_closed_ && is_waiting) {
      request->end_with(Cancelled{CancelReason::engine_closed});
    } else if (patience) {
      plan_.wake_at = std::min(plan_.wake_at.value_or(*patience), *patience);
    }
    if (request->end && request->stage == Stage::completing && cancel_reason(*request))
      request->stage = Stage::active;  // cancelled meanwhile: the token is not fed (EXE-20)
  }
}

// SPEC-2, SPEC-11: the budget of the step is the planner's business.
void Engine::propose_drafts() {
  for (Request* request : rows_) {
    request->drafts.clear();
    if (!request->draft || request->stage != Stage::active || request->sink->is_paused()) continue;
    const std::uint64_t n_asked = std::min(
        {request->options.n_draft_tokens, request->options.draft->max_drafts(), kMaxDrafts});
    const std::uint64_t n_max = std::min(n_asked, request->n_remaining() - 1);
    if (n_max == 0) continue;
    const DraftAsk ask{request->draft_feed, request->prompt().size() + request->emitted.size(),
                       static_cast<std::uint32_t>(n_max)};
    const Status proposed = request->draft->propose(ask, request->drafts);
    const bool is_known =
        std::all_of(request->drafts.begin(), request->drafts.end(),
                    [&](TokenId token) { return token < parts_.executor.vocab_size(); });
    if (!proposed || !is_known) {
      log::warning("draft source dropped: " +
                   (proposed ? std::string("unknown token") : proposed.error().what));
      request->drafts.clear();
      request->draft.reset();
    }
    request->drafts.resize(std::min<std::size_t>(request->drafts.size(), n_max));
  }
}

// Windows of drafts that recurrent layers can step back from (Executor::max_tentative_tokens).
void Engine::bound_tentative_tokens() {
  std::uint32_t left = parts_.executor.max_tentative_tokens();
  for (sched::PlanRow& row : plan_rows_) {
    if (row.n_drafts == 0) continue;
    row.n_drafts = left > 1 ? std::min(row.n_drafts, left - 1) : 0;
    if (row.n_drafts > 0) left -= 1 + row.n_drafts;
  }
}

// Rows of logits of a step: each row may want one, what is left goes to prompts that want them at
// every position (SAMP-32), then to drafts.
void Engine::bound_wanted_rows() {
  const std::uint32_t most = parts_.executor.max_wanted();
  const auto n_rows = static_cast<std::uint32_t>(plan_rows_.size());
  std::uint32_t left = most > n_rows ? most - n_rows : 0;
  for (sched::PlanRow& row : plan_rows_) {
    if (!row.wants_prompt_logits || row.is_whole || row.phase != sched::RowPhase::preparing)
      continue;
    row.prefill_chunk = std::min(row.prefill_chunk, 1 + left);
    const std::uint64_t fed = std::min<std::uint64_t>(row.prefill_chunk, row.length - row.position);
    left -= fed > 0 ? static_cast<std::uint32_t>(fed) - 1 : 0;
  }
  for (sched::PlanRow& row : plan_rows_) {
    row.n_drafts = std::min(row.n_drafts, left);
    left -= row.n_drafts;
  }
}

void Engine::make_plan() {
  plan_rows_.clear();
  for (const Request* request : rows_) {
    sched::PlanRow row{.request = request->id};
    row.phase = request->stage == Stage::preparing ? sched::RowPhase::preparing
                : request->stage == Stage::waiting ? sched::RowPhase::waiting
                : request->stage == Stage::active  ? sched::RowPhase::active
                                                   : sched::RowPhase::completing;
    row.is_paused = request->sink->is_paused();
    row.wants_prompt_logits =
        request->options.prompt_logprobs || request->options.hidden == WantedHidden::all;
    row.is_whole = parts_.executor.takes_whole_rows();
    row.position = request->row ? parts_.store->length(*request->row) : 0;
    row.length = request->prompt().size();
    row.prefill_chunk = request->options.prefill_chunk;
    row.transition = parts_.store->transition();
    row.n_drafts = static_cast<std::uint32_t>(request->drafts.size());
    if (row.position < row.transition)  // no window crosses it (KV-23)
      row.n_drafts = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(row.n_drafts, row.transition - 1 - row.position));
    row.snapshot_at = request->boundaries;
    plan_rows_.push_back(row);
  }
  bound_tentative_tokens();
  bound_wanted_rows();
  planner_.plan(plan_rows_, plan_);
}

EngineSnapshot Engine::snapshot() const {
  EngineSnapshot out = totals_;
  out.queued = static_cast<std::uint32_t>(queue_.size());
  const GroupView view = group_view();
  out.preparing = view.preparing;
  out.active = view.active;
  out.is_held = n_holds_ > 0;
  out.is_closed = is_closed_;
  out.max_rows = options_.max_rows;
  out.queue_limit = static_cast<std::uint32_t>(options_.queue_limit);
  out.kv_used_bytes = parts_.store->used_bytes();
  out.kv_total_bytes = parts_.store->total_bytes();
  for (std::uint32_t pool = 0; pool < parts_.store->n_pools(); ++pool) {
    const std::size_t n_free = parts_.store->free_blocks(pool);
    // Walks the pool: once a step is enough.
    const std::size_t n_available = parts_.store->available_blocks(pool);
    out.kv_available_bytes += n_available * parts_.store->block_bytes(pool);
    out.kv_free_blocks += n_free;
    out.kv_cached_blocks += n_available - n_free;
    out.kv_row_blocks += parts_.store->total_blocks(pool) - n_available;
  }
  if (parts_.cache) out.cache = parts_.cache->stats();
  return out;
}

std::string Engine::check_invariants() const {
  const kv::KvSnapshot books = parts_.store->snapshot();
  if (std::string wrong = kv::check_invariants(books); !wrong.empty()) return wrong;
  if (rows_.size() > options_.max_rows) return "more rows than max_rows (SCH-2)";
  if (rows_.size() + queue_.size() != requests_.size()) return "a request neither waits nor runs";
  std::unordered_map<KvRowId, int> owners;
  for (const auto& [state, is_used] : states_) owners[state] = 1;
  for (const Request* request : rows_) {
    if (request->end && request->stage != Stage::completing) return "an ended request still runs";
    if (!request->row.has_value() != (request->stage == Stage::waiting))
      return "a row without KV state";
    if (!request->row) continue;
    if (request->owns_state() && ++owners[*request->row] != 1) return "two requests own one row";
    const std::uint64_t length = parts_.store->length(*request->row);
    const std::uint64_t known = request->prompt().size() + request->emitted.size();
    const std::uint64_t n_unfed = is_fed_ahead(*request) ? 0 : 1;
    const bool is_prompt_fed = request->stage != Stage::preparing;
    if (is_prompt_fed ? length + n_unfed != known : length >= request->prompt().size())
      return "a row's state disagrees with its tokens";
  }
  for (const kv::KvSnapshot::Row& row : books.rows) {
    if (!owners.contains(row.id)) return "a row in the store belongs to nobody";
    if (row.state.in_step) return "a row is in a step between steps";
  }
  return books.rows.size() == owners.size() ? "" : "a request's row is not in the store";
}

}  // namespace kvasir::engine
