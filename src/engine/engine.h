// Engine: every request from options to outcome (DESIGN §3). One step is one transaction over all
// rows: plan → reserve → checkpoint → run → sample → deliver → commit; a failed or cancelled row
// harms no other and gives back every block. Invariant: whatever runs beside a row never changes
// its bits (SCH-17). Engine thread only, but for prepare() and context_limit(), which any thread
// may call. EngineThread drives it in a server; tests and tools call step() themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/prefix_cache.h"
#include "contract/executor.h"
#include "contract/generate_options.h"
#include "contract/sink.h"
#include "contract/step_plan.h"
#include "engine/context_limit.h"
#include "kv/kv_store.h"
#include "sched/admission.h"
#include "sched/step_planner.h"

namespace kvasir::engine {

struct Request;    // private: one request's state
struct RowWork;    // private: one row's part of a step
struct StepFrame;  // private: a step from its plan to its delivery

// An executor takes so many rows of logits a step beside one of each row, that prompts whose every
// position is wanted go on as fast as others must (SCH-13).
constexpr std::uint32_t kPromptLogitRows = 64;

struct EngineOptions {
  std::uint32_t max_rows = 8;                    // SCH-2
  std::uint32_t max_step_tokens = 512;           // B
  std::uint32_t prefill_share = 128;             // P
  std::size_t queue_limit = 64;                  // SCH-1
  std::optional<Clock::Duration> queue_timeout;  // SCH-40; none: requests wait as long as it takes
  std::uint32_t context_length = 0;              // lowers the model's; 0: the model's (FIT-12)
  std::vector<TokenId> eos_ids;                  // of requests that name none
  std::vector<TokenId> newline_ids;              // the tokens of "\n" (SAMP-10)
  std::string cache_namespace;                   // KV-42, of requests that name none
  // Prompts of models that are not resumable everywhere also leave their state in the cache at
  // multiples of it (CACHE-15); 0: they do not.
  std::uint32_t snapshot_every = 2048;
  int n_sampling_threads = 1;  // for rows whose scores the host reads; the same tokens with any
  // Bytes of weights and state that a step of n_tokens reads, its rows then having those lengths;
  // empty: not counted.
  std::function<std::uint64_t(std::uint64_t n_tokens, std::span<const std::uint32_t> lengths)>
      step_bytes = {};
};

struct EngineParts {
  Executor& executor;  // outlives the engine
  const Clock& clock;  // outlives the engine
  std::unique_ptr<kv::KvStore> store;
  std::unique_ptr<cache::PrefixCache> cache;  // of that store; null: no prefix is ever reused
};

struct StepReport {
  std::uint32_t n_rows = 0;
  std::uint64_t n_tokens = 0;
  std::uint32_t n_admitted = 0;
  std::uint32_t n_ended = 0;
  std::uint32_t n_deferred = 0;  // prefill spans put off for want of blocks (SCH-22)
  bool is_idle = false;          // nothing ran: sleep until a message or wake_at
  std::optional<Clock::Duration> wake_at;
  std::optional<Error> failure;  // of the run; the step's rows ended with it (SCH-34)
};

struct EngineSnapshot {  // for /stats and /metrics
  std::uint32_t queued = 0, preparing = 0, active = 0, max_rows = 0, queue_limit = 0;
  bool is_held = false, is_closed = false;
  std::uint64_t steps = 0, decode_tokens = 0, prefill_tokens = 0, draft_tokens = 0, deferrals = 0;
  std::size_t kv_used_bytes = 0, kv_total_bytes = 0, kv_available_bytes = 0;
  std::size_t kv_row_blocks = 0, kv_cached_blocks = 0, kv_free_blocks = 0;  // over all pools
  std::uint64_t step_bytes = 0;        // read by all steps (EngineOptions::step_bytes)
  double decode_bytes_per_second = 0;  // a running mean over decode steps
  double row_seconds = 0;  // a running mean of how long rows took from admission to their end
  Histogram decode_steps, prefill_steps;  // a step that feeds any prompt token counts as prefill
  cache::PrefixCacheStats cache;
};

// Validated requests that are not yet in the queue: the n choices of one prompt.
class PreparedRequest {
 public:
  PreparedRequest(PreparedRequest&&) noexcept;
  PreparedRequest& operator=(PreparedRequest&&) noexcept;
  ~PreparedRequest();
  std::size_t size() const noexcept { return choices_.size(); }
  std::vector<RequestId> ids() const;

 private:
  friend class Engine;
  explicit PreparedRequest(std::vector<std::unique_ptr<Request>> choices) noexcept;
  std::vector<std::unique_ptr<Request>> choices_;
};

class Engine {
 public:
  // Errors: limits that cannot work (SCH §2), a step larger than the executor's, a store without
  // room for any context.
  static Result<std::unique_ptr<Engine>> make(EngineParts parts, EngineOptions options);
  ~Engine();  // ends what still lives with `engine_closed`
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Everything about a request that can be refused before it waits. Choice i draws with seed + i
  // (SAMP-22). Errors: invalid_argument with the texts of EXE-1, FIT-20, FIT-21, SAMP-4 and EXE-35,
  // and when the model gives what the request does not want: tokens or hidden rows (SRV-14).
  Result<PreparedRequest> prepare(GenerateOptions options, std::uint32_t n_choices = 1) const;
  // One sink a choice, all or nothing; on error both stay the caller's. The prompt of several
  // choices is computed once. Errors: capacity `queue_full`; invalid_argument for a caller's state
  // that is unknown, in use or too long; cancelled `engine_closed` once closed.
  Status enqueue(PreparedRequest&& request, std::vector<std::unique_ptr<Sink>>&& sinks);
  Result<RequestId> submit(GenerateOptions options, std::unique_ptr<Sink> sink);
  Result<std::vector<RequestId>> submit_choices(GenerateOptions options,
                                                std::vector<std::unique_ptr<Sink>> sinks);
  // Takes effect before the row's next token; unknown ids are ignored, the first reason stays.
  // Sinks may call it.
  void cancel(RequestId request, CancelReason reason) noexcept;

  StepReport step();
  bool has_requests() const noexcept { return !requests_.empty(); }

  // Admission stops while anyone holds (SCH-30).
  void hold() noexcept { ++n_holds_; }
  void release_hold() noexcept;
  // New requests are refused, waiting ones end with `engine_closed`, running ones go on (SCH-32).
  void close() noexcept { is_closed_ = true; }
  void cancel_all(CancelReason reason) noexcept;
  // Ends every request with code `engine_failed`, publishing nothing (SCH-33).
  void fail_all(const Error& error);

  // State that outlives a request (GenerateOptions::state): used by one request at a time, freed by
  // the caller.
  KvRowId create_state();
  // One that starts from planes of elsewhere; exact ones may be longer than the transition, where
  // they are converted before their first step (KV-19). Errors: those of KvStore::restore.
  Result<KvRowId> import_state(const kv::KvPlanes& planes);
  Status free_state(KvRowId state);  // error: unknown, or in use by a request
  std::uint32_t state_length(KvRowId state) const noexcept;

  const ContextLimit& context_limit() const noexcept { return context_limit_; }
  kv::KvStore& store() noexcept { return *parts_.store; }
  cache::PrefixCache* cache() noexcept { return parts_.cache.get(); }
  EngineSnapshot snapshot() const;
  // Empty, or the first thing that is wrong: the store's books, who owns which row, SCH-2.
  std::string check_invariants() const;

 private:
  Engine(EngineParts parts, EngineOptions options, sched::StepPlanner planner, ContextLimit limit);

  // engine.cpp: the boundary
  void drop_ended();
  void propose_drafts();
  void make_plan();
  void bound_tentative_tokens();
  void bound_wanted_rows();
  void count_step(const StepFrame& frame, double seconds);
  std::optional<CancelReason> cancel_reason(const Request& request) const noexcept;
  std::optional<Clock::Duration> patience_of(const Request& request) const noexcept;

  // detail/admit.cpp
  void admit(StepReport& report);
  GroupView group_view() const;
  bool can_ride(const Request& request) const;
  bool start(Request& request);
  bool take_prefix(Request& request, std::span<const sched::BlockDemand> running);
  void plan_snapshots(Request& request) const;
  std::vector<sched::BlockDemand> running_demand() const;  // [n_rows, n_pools]
  void add_demand(const Request& request, std::vector<sched::BlockDemand>& out) const;
  bool demand_fits(std::span<const sched::BlockDemand> rows) const;
  bool budget_allows(std::span<const sched::BlockDemand> running, const Request& request) const;
  std::string_view namespace_of(const Request& request) const noexcept;

  // detail/transact.cpp: the step
  Status begin_step(StepReport& report);
  Status complete_step(StepReport& report);
  void abort_steps(const Error& error);
  void forget_steps() noexcept;
  void fail_rows(std::span<const PlannedRow> rows, const Error& error);
  Status convert_due(StepReport& report);
  Result<kv::KvStep> reserve(StepReport& report);
  bool relieve(StepReport& report);
  void open_work(StepFrame& frame);
  void gather(StepFrame& frame);
  void want_scores_or_picks(StepFrame& frame);
  PickRow pick_for(const RowWork& work, std::size_t i) const;
  Status launch(StepFrame& frame);
  Result<StepOutput> collect(StepFrame& frame);
  Status sample(StepFrame& frame, const StepOutput& output);
  void sample_rows(StepFrame& frame, const StepOutput& output);
  Status sample_row(StepFrame& frame, RowWork& work, const StepOutput& output);
  Result<Sampled> sample_token(const StepFrame& frame,
                               RowWork& work,
                               const StepOutput& output,
                               std::uint32_t i);
  Status take_hidden(RowWork& work, const LogitsView& outputs);
  void deliver(StepFrame& frame);
  void deliver_row(RowWork& work);
  void deliver_prompt(RowWork& work);

  // detail/look_ahead.cpp: the next step, before this one's tokens are read
  void run_ahead();
  bool may_run_ahead() const;
  bool can_go_on(const RowWork& work) const;
  void open_ahead(StepFrame& frame);
  void resolve_ahead();
  void drain();
  bool is_fed_ahead(const Request& request) const noexcept;
  void drop_from_steps(const Request& request) noexcept;

  // detail/settle.cpp: after the commit, and ends
  void advance_rows(StepFrame& frame);
  void advance_prefill(RowWork& work);
  void report_prompt(const Request& leader, std::uint64_t n_fed) const noexcept;
  void fork_choices(Request& leader);
  void publish(const Request& request,
               std::uint64_t n_tokens,
               cache::EntryKind kind = cache::EntryKind::prefix);
  void publish_at_transition(const Request& request);
  void settle(StepReport& report);
  void finish(Request& request);
  void hand_over(Request& leader);

  Request* find(RequestId id) const noexcept;

  EngineParts parts_;
  EngineOptions options_;
  sched::StepPlanner planner_;
  sched::WaitQueue queue_;
  ContextLimit context_limit_;
  mutable std::atomic<std::uint64_t> next_id_{1};
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Request*> rows_;                // admitted, in admission order
  std::unordered_map<KvRowId, bool> states_;  // callers' states → in use
  std::uint32_t n_holds_ = 0;
  bool is_closed_ = false;

  StepPlan plan_;  // buffers of one step, reused
  std::vector<sched::PlanRow> plan_rows_;
  std::vector<kv::RowSpan> spans_;
  std::vector<std::uint32_t> row_ends_;
  // The step that is delivered next, and the one launched behind it (EXE-10). Between two calls of
  // step() only the former may be on its way; its KV is committed then.
  std::unique_ptr<StepFrame> current_, next_;
  std::unique_ptr<ThreadPool> sampling_pool_;  // null: one thread
  std::vector<Status> sampled_;                // of the step's rows
  std::vector<Request*> ending_;
  EngineSnapshot totals_;
};

}  // namespace kvasir::engine
