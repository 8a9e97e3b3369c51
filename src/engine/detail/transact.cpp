// The step as a transaction: reserve → checkpoint → run → sample → deliver → commit. Every early
// return rolls back.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "engine/detail/request.h"
#include "engine/engine.h"
#include "sampling/logprobs.h"

namespace kvasir::engine {
namespace {

// State of a failed or cancelled row is never kept (KV-55).
bool has_good_state(const Request& request) {
  return !request.end || std::holds_alternative<Completed>(*request.end);
}

}  // namespace

// Up to the launch.
Status Engine::begin_step(StepReport& report) {
  StepFrame& frame = *current_;
  frame.rows.clear();
  frame.tokens.clear();
  KVASIR_TRY(frame.kv, reserve(report));  // ~KvStep gives the blocks back
  frame.rows = plan_.rows;
  open_work(frame);
  gather(frame);
  return launch(frame);
}

// From what was launched to the commit.
Status Engine::complete_step(StepReport& report) {
  StepFrame& frame = *current_;
  RequestTxn requests(frame.work);  // ~RequestTxn restores samplers and constraints
  KVASIR_TRY(const StepOutput output, collect(frame));
  KVASIR_TRY_DO(sample(frame, output));
  deliver(frame);
  if (frame.kv) {
    parts_.executor.replay(frame.batch(), frame.keep);  // noexcept
    std::move(*frame.kv).commit(frame.keep);            // noexcept
    frame.kv.reset();
  }
  std::move(requests).commit();  // noexcept
  advance_rows(frame);
  if (next_->is_on_its_way) resolve_ahead();
  report.n_rows = static_cast<std::uint32_t>(frame.rows.size());
  report.n_tokens = frame.tokens.size();
  return {};
}

// SCH-34: every row of the step ends, and nothing of it is kept. What was launched behind it has
// read what it left: it is waited for and given up too.
void Engine::abort_steps(const Error& error) {
  StepFrame& frame = *current_;
  if (!frame.kv && !frame.rows.empty()) {
    for (const RowWork& work : frame.work)
      if (work.request) work.request->n_discarded = 1;
  }
  forget_steps();
  fail_rows(frame.rows.empty() ? plan_.rows : frame.rows, error);
}

// Waits for what is on its way, and gives back what is not committed.
void Engine::forget_steps() noexcept {
  for (StepFrame* frame : {current_.get(), next_.get()}) {
    if (frame->is_on_its_way) static_cast<void>(collect(*frame));
    frame->kv.reset();
  }
}

void Engine::fail_rows(std::span<const PlannedRow> rows, const Error& error) {
  for (const PlannedRow& row : rows)
    if (Request* const request = find(row.request)) request->fail("engine_failed", error.what);
}

// KV-24: rows whose length has reached the transition position, before they step on.
Status Engine::convert_due(StepReport& report) {
  for (std::size_t i = 0; i < plan_.rows.size();) {
    const Status converted = parts_.store->convert(*find(plan_.rows[i].request)->row);
    if (converted) {
      ++i;
      continue;
    }
    if (converted.error().code != Errc::capacity || !relieve(report)) return converted;
    i = 0;  // rows may have left the plan
  }
  return {};
}

Result<kv::KvStep> Engine::reserve(StepReport& report) {
  KVASIR_TRY_DO(convert_due(report));
  for (;;) {
    spans_.clear();
    for (const PlannedRow& row : plan_.rows)
      spans_.push_back(
          {*find(row.request)->row, static_cast<std::uint32_t>(row.n_tokens()), row.drafts});
    Result<kv::KvStep> step = parts_.store->reserve(spans_);
    if (step || step.error().code != Errc::capacity || !relieve(report)) return step;
  }
}

// SCH-22: what goes when blocks are short, one thing a call, decode tokens never. The store has
// already evicted cached prefixes that nobody pins. False: nothing was left to give up.
bool Engine::relieve(StepReport& report) {
  bool has_unpinned = false;
  for (Request* request : rows_) {
    has_unpinned |= request->is_pinning;
    request->unpin();
  }
  if (has_unpinned) return true;
  if (parts_.cache && parts_.cache->stats().entries > 0) {
    parts_.cache
        ->clear();  // also entries whose only cost is the copy of a tail that they share with a row
    return true;
  }
  auto& rows = plan_.rows;
  if (rows.size() > 1 && rows.back().kind == SpanKind::prefill) {  // the youngest prepares last
    rows.pop_back();
    ++report.n_deferred;
    ++totals_.deferrals;
    return true;
  }
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (row->drafts == 0) continue;
    row->drafts = 0;
    row->end = row->begin + 1;
    row->wanted = WantedLogits::last;
    return true;
  }
  // The budget promised that this cannot be: a tripwire for an accounting bug.
  log::error("kv blocks ran out under admitted rows");
  find(rows.back().request)->fail("kv_exhausted", "kv blocks");
  rows.pop_back();
  return !rows.empty();
}

void Engine::open_work(StepFrame& frame) {
  WorkList list(frame.work);
  for (std::size_t i = 0; i < frame.rows.size(); ++i) {
    const PlannedRow& row = frame.rows[i];
    Request& request = *find(row.request);
    RowWork& work = list.next();
    work.request = &request;
    work.span = i;
    work.kind = row.kind;
    work.begin = row.begin;
    work.end = row.end;
    const bool is_prompt_end = row.kind == SpanKind::prefill && row.end == request.prompt().size();
    work.samples = row.kind == SpanKind::decode || (is_prompt_end && request.max_tokens > 0);
    if (row.kind == SpanKind::decode) request.drafts.resize(row.drafts);
    if (!is_prompt_end) continue;
    for (Request* choice : rows_) {
      if (choice->stage != Stage::waiting || choice->leader != request.id) continue;
      RowWork& rider = list.next();
      rider.request = choice;
      rider.kind = SpanKind::prefill;
      rider.begin = rider.end = row.end;
      rider.samples = choice->max_tokens > 0;
    }
  }
}

// What the step feeds, and what it wants of it.
void Engine::gather(StepFrame& frame) {
  frame.tokens.clear();
  frame.positions.clear();
  frame.wanted.clear();
  for (RowWork& work : frame.work) {
    if (!work.span) {  // a rider follows its leader: the same last position
      work.first_logit = frame.wanted.size() - (frame.wanted.empty() ? 0 : 1);
      work.n_logits = work.samples ? 1 : 0;
      continue;
    }
    const PlannedRow& row = frame.rows[*work.span];
    const bool wants_all = row.wanted == WantedLogits::all;
    const bool wants_last =
        work.samples || (work.request->options.hidden && row.wanted == WantedLogits::last);
    work.first_logit = frame.wanted.size();
    for (std::uint64_t position = row.begin; position < row.end; ++position) {
      const bool is_last = position + 1 == row.end;
      if (wants_all || (wants_last && is_last))
        frame.wanted.push_back(static_cast<std::uint32_t>(frame.tokens.size()));
      frame.tokens.push_back(work.request->token_at(position));
      frame.positions.push_back(static_cast<std::uint32_t>(position));
    }
    work.n_logits = frame.wanted.size() - work.first_logit;
  }
  want_scores_or_picks(frame);
}

Status Engine::launch(StepFrame& frame) {
  KVASIR_TRY_DO(parts_.executor.launch(frame.batch()));
  frame.is_on_its_way = true;
  return {};
}

Result<StepOutput> Engine::collect(StepFrame& frame) {
  frame.is_on_its_way = false;
  KVASIR_TRY(const StepOutput out, parts_.executor.collect());
  const std::size_t n_wanted = frame.wanted.size();
  const bool is_whole =
      n_wanted == 0 || (out.logits.data != nullptr && out.logits.n_rows == n_wanted &&
                        out.logits.vocab == parts_.executor.output_width());
  if (!is_whole || out.picked.size() != frame.picks.size())
    return Error{Errc::device, "the executor returned other outputs than were wanted"};
  return out;
}

// Scores stay where they are if all that their row needs of them is a token (SAMP-2, SAMP-12).
void Engine::want_scores_or_picks(StepFrame& frame) {
  frame.picks.clear();
  if (!parts_.executor.picks_tokens()) return;
  frame.picks.resize(frame.wanted.size());
  for (const RowWork& work : frame.work) {
    if (!work.span) {  // the row is its leader's
      if (work.n_logits > 0) frame.picks[work.first_logit] = {};
      continue;
    }
    for (std::size_t i = 0; i < work.n_logits; ++i)
      frame.picks[work.first_logit + i] = pick_for(work, i);
  }
  const bool is_any = std::any_of(frame.picks.begin(), frame.picks.end(),
                                  [](const PickRow& row) { return row.kind != PickKind::none; });
  if (!is_any) frame.picks.clear();
}

PickRow Engine::pick_for(const RowWork& work, std::size_t i) const {
  const Request& request = *work.request;
  const bool is_read = !work.samples || request.constraint || request.options.hidden ||
                       (request.options.prompt_logprobs && work.kind == SpanKind::prefill);
  return is_read ? PickRow{} : request.session.pick_at(request.emitted.size() + i);
}

// Rows share nothing, so each may be any thread's.
void Engine::sample_rows(StepFrame& frame, const StepOutput& output) {
  sampled_.assign(frame.work.size(), Status{});
  const auto one = [&](std::size_t i) {
    RowWork& work = frame.work[i];
    if (work.request) sampled_[i] = sample_row(frame, work, output);
  };
  const auto n_read = std::count_if(frame.picks.begin(), frame.picks.end(),
                                    [](const PickRow& row) { return row.kind == PickKind::none; });
  const bool is_much = frame.work.size() > 1 && (frame.picks.empty() || n_read > 1);
  if (!sampling_pool_ || !is_much) {
    for (std::size_t i = 0; i < frame.work.size(); ++i) one(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  sampling_pool_->run([&](int) {
    for (std::size_t i = next++; i < frame.work.size(); i = next++) one(i);
  });
}

Status Engine::sample(StepFrame& frame, const StepOutput& output) {
  sample_rows(frame, output);
  for (std::size_t i = 0; i < frame.work.size(); ++i) {
    Status& sampled = sampled_[i];
    if (sampled) continue;
    const RowWork& work = frame.work[i];
    const Error& error = sampled.error();
    const bool is_code =
        error.what == sampling::kNumericError || error.what == sampling::kGrammarDeadEnd;
    const bool is_of_the_step = error.code == Errc::device || error.code == Errc::capacity;
    if (is_of_the_step && !is_code) return std::move(sampled);
    work.request->fail(is_code ? error.what : "sampling_failed", error.what);
  }
  return {};
}

Status Engine::take_hidden(RowWork& work, const LogitsView& outputs) {
  if (work.n_logits == 0) return {};
  work.hidden = {.first = work.end - work.n_logits,
                 .width = outputs.vocab,
                 .values = {outputs.row(work.first_logit).data(), work.n_logits * outputs.vocab}};
  const bool is_finite = std::all_of(work.hidden.values.begin(), work.hidden.values.end(),
                                     [](float x) { return std::isfinite(x); });
  if (!is_finite) return invalid(std::string(sampling::kNumericError));  // EXE-25
  return {};
}

Status Engine::sample_row(StepFrame& frame, RowWork& work, const StepOutput& output) {
  Request& request = *work.request;
  const LogitsView& logits = output.logits;
  if (request.options.hidden) return take_hidden(work, logits);
  if (request.options.prompt_logprobs && work.span && work.kind == SpanKind::prefill) {
    for (std::size_t i = 0; i < work.n_logits; ++i) {
      const std::uint64_t target = work.begin + i + 1;
      if (target == request.prompt().size()) break;
      KVASIR_TRY(Logprobs logprobs,
                 sampling::logprobs_of(logits.row(work.first_logit + i), request.prompt()[target],
                                       *request.options.prompt_logprobs));
      work.prompt_logprobs.push_back(std::move(logprobs));
    }
  }
  if (!work.samples) return {};
  if (!request.is_pending_in_history) request.session.commit(request.emitted.back());
  request.is_pending_in_history = true;
  const std::vector<TokenId>& eos_ids = *request.options.eos_ids;
  const bool is_decode = work.kind == SpanKind::decode;
  work.walk.begin(is_decode ? std::span<const TokenId>(request.drafts) : std::span<const TokenId>(),
                  request.n_remaining(), eos_ids);
  while (!work.walk.done()) {
    KVASIR_TRY(Sampled sampled, sample_token(frame, work, output, work.walk.position()));
    const bool is_eos = std::find(eos_ids.begin(), eos_ids.end(), sampled.token) != eos_ids.end();
    bool grammar_done = false;
    if (request.constraint && !is_eos) {
      KVASIR_TRY(grammar_done, request.constraint->advance(sampled.token));
    }
    work.walk.accept(sampled.token, grammar_done);
    if (sampled.logprobs && !is_eos) work.logprobs.push_back(*std::move(sampled.logprobs));
    if (!work.walk.done()) request.session.commit(sampled.token);
  }
  return {};
}

// The i-th token of a row's step: picked where its scores are, or sampled from them here.
Result<Sampled> Engine::sample_token(const StepFrame& frame,
                                     RowWork& work,
                                     const StepOutput& output,
                                     std::uint32_t i) {
  Request& request = *work.request;
  const bool is_decode = work.kind == SpanKind::decode;
  const std::size_t row = work.first_logit + (is_decode ? i : work.n_logits - 1);
  if (!frame.picks.empty() && frame.picks[row].kind != PickKind::none) {
    const TokenId token = output.picked[row];
    if (token == kNoToken) return Error{Errc::device, std::string(sampling::kNumericError)};
    return Sampled{token, std::nullopt};
  }
  sampling::TokenMask mask;
  if (request.constraint) {
    KVASIR_TRY(mask.words, request.constraint->mask());
  }
  return request.session.sample(output.logits.row(row), request.emitted.size() + i,
                                mask.words.empty() ? nullptr : &mask);
}

// Rows in row order, token by token; then what each row keeps. From here to the commit nothing can
// fail.
void Engine::deliver(StepFrame& frame) {
  for (RowWork& work : frame.work)
    if (work.request) deliver_row(work);
  frame.keep.assign(frame.rows.size(), 0);
  for (std::size_t i = 0; i < frame.work.size(); ++i) {
    RowWork& work = frame.work[i];
    if (!work.span || !work.request) continue;
    bool is_kept = has_good_state(*work.request);
    // The prompt also belongs to the choices that ride on it.
    for (std::size_t j = i + 1; j < frame.work.size() && !frame.work[j].span; ++j)
      is_kept |= has_good_state(*frame.work[j].request);
    const std::uint32_t n_accepted = std::min(work.n_delivered, work.walk.accepted());
    work.keep = work.kind == SpanKind::decode ? 1 + n_accepted
                                              : static_cast<std::uint32_t>(work.end - work.begin);
    if (!is_kept) {
      work.keep = 0;
      if (frame.kv)
        frame.kv->discard(*work.span);
      else
        work.request->n_discarded = 1;
    }
    frame.keep[*work.span] = work.keep;
  }
}

// To its own sink and to those of the choices that wait for this prompt.
void Engine::deliver_prompt(RowWork& work) {
  const std::span<const Logprobs> all = work.prompt_logprobs;
  for (Request* reader : rows_) {
    const bool is_waiting_for_it =
        reader->stage == Stage::waiting && reader->leader == work.request->id;
    if (reader->end || (reader != work.request && !is_waiting_for_it)) continue;
    const auto n_new =
        static_cast<std::uint32_t>(work.begin + all.size()) - reader->n_prompt_reported;
    const Status taken = reader->sink->commit_prompt(all.last(n_new));
    reader->n_prompt_reported += n_new;
    if (!taken) reader->end_with(Failed{"sink_failed", taken.error().what, {}});
  }
}

void Engine::deliver_row(RowWork& work) {
  Request& request = *work.request;
  if (request.end) return;  // failed while sampling, or only completing
  if (!work.prompt_logprobs.empty()) deliver_prompt(work);
  if (!work.hidden.values.empty()) {
    if (const Status taken = request.sink->commit_hidden(work.hidden); !taken)
      request.end_with(Failed{"sink_failed", taken.error().what, {}});
  }
  if (request.end) return;
  const std::uint64_t n_prompt = request.prompt().size();
  if (work.kind == SpanKind::prefill && work.end == n_prompt)
    request.sink->progress(n_prompt, n_prompt);
  const std::span<const TokenId> tokens = work.walk.emitted();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (const auto reason = cancel_reason(request)) return request.end_with(Cancelled{*reason});
    request.emitted.push_back(tokens[i]);  // counts before it is delivered (EXE-8)
    request.is_pending_in_history = false;
    request.is_first_unforwarded = request.emitted.size() == 1;
    ++work.n_delivered;
    const std::span<const Logprobs> logprobs = work.logprobs;
    const Result<SinkReply> reply = request.sink->commit(
        tokens.subspan(i, 1), logprobs.empty() ? logprobs : logprobs.subspan(i, 1));
    if (!request.first_token_at) request.first_token_at = parts_.clock.now();
    if (!reply) return request.end_with(Failed{"sink_failed", reply.error().what, {}});
    if (*reply == SinkReply::stop) {
      request.is_stopped_by_sink = true;
      return request.end_with(Completed{FinishReason::stop});
    }
  }
  const bool is_prompt_done = work.kind == SpanKind::decode || work.end == request.prompt().size();
  if (const auto reason = cancel_reason(request)) {
    request.end_with(Cancelled{*reason});
  } else if (work.walk.saw_eos() || work.walk.grammar_done()) {
    request.end_with(Completed{FinishReason::stop});
  } else if (is_prompt_done && request.emitted.size() >= request.max_tokens) {
    request.end_with(Completed{FinishReason::length});
  } else {
    request.is_first_unforwarded = false;
  }
}

}  // namespace kvasir::engine
