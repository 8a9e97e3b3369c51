// Look-ahead (EXE-10): the next step is launched before this one's tokens are read. It feeds them
// from where they were picked, and its KV is a window of one token a row (KV-53), resolved when
// that token has been delivered: so no row ever has two windows open. Only steps of plain decode
// rows do so; anything else waits until nothing is on its way.
#include <algorithm>

#include "engine/detail/request.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

// Whether a token follows the one that is being sampled (EXE-9).
bool has_another(const Request& request) { return request.emitted.size() + 1 < request.max_tokens; }

}  // namespace

// The step to be collected next has committed tokens for input: they were delivered before it was
// launched. So it may be committed before it has run; if it fails, its rows' states are given up.
void Engine::run_ahead() {
  if (!may_run_ahead()) return;
  StepFrame& frame = *current_;
  if (frame.kv) {
    std::move(*frame.kv).commit();
    frame.kv.reset();
  }
  open_ahead(*next_);
  if (next_->rows.empty()) return;
  spans_.clear();
  for (const RowWork& work : next_->work) spans_.push_back({*work.request->row, 1, 0});
  Result<kv::KvStep> step = parts_.store->reserve(spans_);
  if (!step) return;  // the step after this one finds room, or says why not
  next_->kv = std::move(*step);
  if (!launch(*next_)) next_->kv.reset();  // as well
}

bool Engine::may_run_ahead() const {
  if (!parts_.executor.runs_behind() || current_->picks.empty()) return false;
  std::size_t n_decoding = 0;
  for (const RowWork& work : current_->work) {
    if (!work.request) continue;
    if (!can_go_on(work)) return false;
    ++n_decoding;
  }
  // Rows that rest are not in the step; whoever else is not has something else to do.
  const auto n_resting = std::count_if(rows_.begin(), rows_.end(), [&](const Request* request) {
    return request->stage == Stage::active && request->sink->is_paused() &&
           std::none_of(current_->work.begin(), current_->work.end(),
                        [&](const RowWork& work) { return work.request == request; });
  });
  return n_decoding + static_cast<std::size_t>(n_resting) == rows_.size();
}

bool Engine::can_go_on(const RowWork& work) const {
  const Request& request = *work.request;
  const bool is_plain = work.span && work.kind == SpanKind::decode && work.end == work.begin + 1 &&
                        !request.draft && !request.constraint && request.owns_state();
  if (!is_plain || request.end) return false;
  if (current_->picks[work.first_logit].kind == PickKind::none) return false;
  return work.end != parts_.store->transition();  // due for conversion, or published there
}

void Engine::open_ahead(StepFrame& next) {
  next.rows.clear();
  WorkList work_list(next.work);
  next.tokens.clear();
  next.positions.clear();
  next.wanted.clear();
  next.picks.clear();
  for (const RowWork& work : current_->work) {
    if (!work.request || !has_another(*work.request) || work.request->sink->is_paused()) continue;
    const auto i = static_cast<std::uint32_t>(next.rows.size());
    next.rows.push_back({work.request->id, work.end, work.end + 1});
    RowWork& ahead = work_list.next();
    ahead.request = work.request;
    ahead.span = i;
    ahead.kind = SpanKind::decode;
    ahead.begin = work.end;
    ahead.end = work.end + 1;
    ahead.first_logit = i;
    ahead.n_logits = 1;
    ahead.samples = true;
    next.tokens.push_back(picked_from(static_cast<std::uint32_t>(work.first_logit)));
    next.positions.push_back(static_cast<std::uint32_t>(work.end));
    next.wanted.push_back(i);
    next.picks.push_back(work.request->session.pick_at(work.request->emitted.size() + 1));
  }
}

// Its inputs are delivered now: rows that go on keep them, the others were never fed.
void Engine::resolve_ahead() {
  next_->keep.assign(next_->rows.size(), 1);
  for (std::size_t i = 0; i < next_->work.size(); ++i) {
    RowWork& work = next_->work[i];
    if (!work.request->end) continue;
    next_->keep[i] = 0;
    work.request = nullptr;
  }
  std::move(*next_->kv).commit(next_->keep);
  next_->kv.reset();
}

// A step on its way that nobody waits for any more.
void Engine::drain() {
  if (!current_->is_on_its_way) return;
  const bool is_wanted = std::any_of(current_->work.begin(), current_->work.end(),
                                     [](const RowWork& work) { return work.request != nullptr; });
  if (!is_wanted) static_cast<void>(collect(*current_));
}

bool Engine::is_fed_ahead(const Request& request) const noexcept {
  return current_->is_on_its_way &&
         std::any_of(current_->work.begin(), current_->work.end(),
                     [&](const RowWork& work) { return work.request == &request; });
}

// It ends between two steps: the token on its way is not part of its state.
void Engine::drop_from_steps(const Request& request) noexcept {
  if (!current_->is_on_its_way) return;
  for (RowWork& work : current_->work) {
    if (work.request != &request) continue;
    work.request->n_discarded = 1;
    work.request = nullptr;
  }
}

}  // namespace kvasir::engine
