// One request's whole state, and its part of a step. Private to the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/prefix_cache.h"
#include "contract/draft.h"
#include "contract/draft_acceptance.h"
#include "contract/executor.h"
#include "contract/generate_options.h"
#include "contract/outcome.h"
#include "contract/sink.h"
#include "contract/step_plan.h"
#include "contract/token_constraint.h"
#include "kv/kv_step.h"
#include "sampling/sampling_session.h"

namespace kvasir::engine {

enum class Stage : std::uint8_t {
  queued,
  preparing,   // feeds its prompt
  waiting,     // admitted; another choice of the same prompt feeds it
  active,      // its last emitted token is not in the state yet
  completing,  // ended by its consumer; feeds that token for the caller's state (EXE-20)
};

using End = std::variant<Completed, Cancelled, Failed>;

struct Request {
  Request(RequestId id_, GenerateOptions options_, sampling::SamplingSession session_)
      : id(id_), options(std::move(options_)), session(std::move(session_)) {}

  // Destroyed last to first: draft and constraint before the session (EXE-21).
  RequestId id;
  GenerateOptions options;
  std::uint64_t max_tokens = 0;
  std::uint64_t seed = 0;
  std::unique_ptr<Sink> sink;
  sampling::SamplingSession session;
  std::unique_ptr<DraftSource> draft;
  std::unique_ptr<TokenConstraint> constraint;

  Stage stage = Stage::queued;
  std::optional<CancelReason> cancelled;
  std::optional<End> end;           // set once; the request leaves at this boundary
  std::optional<RequestId> leader;  // another choice whose prefill this one shares
  std::optional<KvRowId> row;       // its KV: its own, or options.state
  cache::Retain retain;             // pins the prefix it started from
  bool is_pinning = false;

  std::vector<std::uint32_t> boundaries;  // where its prompt's spans end and its state is kept
  std::vector<std::uint32_t> waypoints;   // those of them that are nobody's wish (CACHE-15)

  std::vector<TokenId> emitted;  // given to the sink, the last of them not in the state (EXE-9)
  bool is_pending_in_history = true;  // the last emitted token was pushed to the session
  bool is_first_unforwarded = false;  // EXE-8: delivered once, its row has not gone on yet
  bool is_stopped_by_sink = false;
  std::uint32_t n_prompt_reported = 0;  // prompt logprobs given to the sink
  // Tokens at the end of its state that a failed or cancelled step has left there: a step that was
  // run ahead is committed before it is read. Such a state is given up (KV-55).
  std::uint32_t n_discarded = 0;

  std::vector<TokenId> drafts;      // proposed for this step
  std::vector<TokenId> draft_feed;  // what the source has not seen (SPEC-3)
  std::size_t n_draft_told = 0;  // tokens of prompt + emitted that the source was given by accept

  Stats stats;
  Clock::Duration queued_at{};
  Clock::Duration admitted_at{};
  std::optional<Clock::Duration> first_token_at;

  const std::vector<TokenId>& prompt() const noexcept { return options.prompt; }
  std::uint64_t n_total() const noexcept { return prompt().size() + max_tokens; }
  bool owns_state() const noexcept { return !options.state.has_value(); }
  std::uint64_t n_remaining() const noexcept { return max_tokens - emitted.size(); }
  // The token at an absolute position of prompt + emitted + drafts.
  TokenId token_at(std::uint64_t position) const noexcept {
    if (position < prompt().size()) return prompt()[position];
    position -= prompt().size();
    if (position < emitted.size()) return emitted[position];
    return drafts[position - emitted.size()];
  }
  void unpin() noexcept {
    retain.release();
    is_pinning = false;
  }
  // The first cause stays.
  template <class Cause>
  void end_with(Cause cause) {
    if (!end) end.emplace(std::move(cause));
  }
  // Even when it had ended and only its last token was being fed (EXE-20).
  void fail(std::string code, std::string message) {
    if (stage == Stage::completing) stage = Stage::active;
    end.emplace(Failed{std::move(code), std::move(message), {}});
  }
  bool is_over() const noexcept { return end && stage != Stage::completing; }
};

// A row's part of a step: where its logits are, what was sampled, what the consumer said.
struct RowWork {
  Request* request = nullptr;  // null: it ended while the step was on its way
  std::optional<std::size_t>
      span;  // index in the plan; none: a choice riding on its leader's prefill
  SpanKind kind = SpanKind::prefill;
  std::uint64_t begin = 0, end = 0;
  std::size_t first_logit = 0;  // among the step's wanted rows
  std::size_t n_logits = 0;
  bool samples = false;  // from its last logits; a decode row from all of them
  DraftAcceptance walk;
  std::vector<Logprobs> logprobs;  // [emitted] when captured
  std::vector<Logprobs> prompt_logprobs;
  HiddenRows hidden;  // of an embedding request
  std::uint32_t n_delivered = 0;
  std::uint32_t keep = 0;  // tokens of the span that stay
};

// The frame's rows' parts, one after another, with their buffers.
class WorkList {
 public:
  explicit WorkList(std::vector<RowWork>& work) : work_(work) {}
  ~WorkList() { work_.resize(n_); }
  WorkList(const WorkList&) = delete;
  WorkList& operator=(const WorkList&) = delete;
  RowWork& next() {
    if (n_ == work_.size()) work_.emplace_back();
    RowWork& work = work_[n_++];
    work.span.reset();
    work.logprobs.clear();
    work.prompt_logprobs.clear();
    work.hidden = {};
    work.walk.begin({}, 0, {});
    work.n_delivered = work.keep = 0;
    return work;
  }

 private:
  std::vector<RowWork>& work_;
  std::size_t n_ = 0;
};

struct StepFrame {
  std::vector<PlannedRow> rows;
  std::vector<RowWork> work;
  std::vector<std::uint32_t> tokens, positions, wanted, keep;
  std::vector<PickRow> picks;    // of wanted; empty: nobody picks
  std::optional<kv::KvStep> kv;  // none: committed
  bool is_on_its_way = false;    // launched, and not collected

  StepBatch batch() const noexcept { return {tokens, positions, kv->views(), wanted, picks}; }
};

// Restores the samplers and constraints of a step's rows unless committed: an aborted step leaves
// them as before it.
class RequestTxn {
 public:
  explicit RequestTxn(std::vector<RowWork>& work) {
    marks_.reserve(work.size());
    for (RowWork& row : work) {
      if (!row.request) continue;
      Request& request = *row.request;
      const std::size_t constraint = request.constraint ? request.constraint->snapshot() : 0;
      marks_.push_back(
          {&request, request.session.snapshot(), constraint, request.is_pending_in_history});
    }
  }
  RequestTxn(const RequestTxn&) = delete;
  RequestTxn& operator=(const RequestTxn&) = delete;
  ~RequestTxn() {
    for (Mark& mark : marks_) {
      mark.request->session.restore(mark.session);
      if (mark.request->constraint) mark.request->constraint->restore(mark.constraint);
      mark.request->is_pending_in_history = mark.is_pending_in_history;
    }
  }
  void commit() && noexcept { marks_.clear(); }

 private:
  struct Mark {
    Request* request;
    sampling::SamplingSession::Snapshot session;
    std::size_t constraint;
    bool is_pending_in_history;
  };
  std::vector<Mark> marks_;
};

}  // namespace kvasir::engine
