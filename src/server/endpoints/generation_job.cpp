#include "server/endpoints/generation_job.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "server/endpoints/state.h"

namespace kvasir::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kWatch{1000};
constexpr milliseconds kHeadersAfter{1000};  // in the queue (SRV-33)
constexpr std::chrono::seconds kKeepAlive{5};
constexpr std::size_t kEventBytes = 128;  // what an event costs beside its text

std::size_t size_of_event(const GenerationEvent& event) {
  std::size_t n = kEventBytes;
  for (const text::OutputPiece& piece : event.pieces)
    n += piece.text.size() + piece.call.arguments.size();
  for (const Logprobs& logprobs : event.logprobs) n += logprobs.top.size() * sizeof(TokenLogprob);
  return n;
}

void append_piece(std::vector<text::OutputPiece>& blocks, const text::OutputPiece& piece) {
  const bool joins = !blocks.empty() && piece.kind != text::OutputKind::tool_call &&
                     blocks.back().kind == piece.kind;
  if (joins)
    blocks.back().text += piece.text;
  else
    blocks.push_back(piece);
}

}  // namespace

class GenerationJob::Ear final : public GenerationListener {
 public:
  Ear(std::shared_ptr<GenerationJob> job, std::uint32_t first_choice)
      : job_(std::move(job)), first_choice_(first_choice) {}

  void on_queued() noexcept override {
    job_->exchange_->post([job = job_] { job->on_queued(); });
  }
  void on_progress(std::uint64_t fed, std::uint64_t total) noexcept override {
    job_->exchange_->post([job = job_, fed, total] { job->on_progress(fed, total); });
  }
  void on_event(GenerationEvent event) noexcept override {
    job_->receive(first_choice_, std::move(event));
  }
  bool is_paused() const noexcept override { return job_->rests(); }

 private:
  std::shared_ptr<GenerationJob> job_;  // shared with the strand's actions
  std::uint32_t first_choice_;
};

void GenerationJob::run(ServerState& state,
                        std::string_view endpoint,
                        std::shared_ptr<Exchange> exchange,
                        Plan plan) {
  std::make_shared<GenerationJob>(state, endpoint, std::move(exchange), std::move(plan))->start();
}

GenerationJob::GenerationJob(ServerState& state,
                             std::string_view endpoint,
                             std::shared_ptr<Exchange> exchange,
                             Plan plan)
    : state_(state), endpoint_(endpoint), exchange_(std::move(exchange)), plan_(std::move(plan)) {
  const GenerateRequest& first = plan_.requests.front();
  transcript_.model = plan_.model;
  transcript_.created_s = std::time(nullptr);
  transcript_.n_per_prompt = first.n;
  n_open_ = plan_.requests.size() * first.n;
  transcript_.choices.resize(n_open_);
  Engine* engine = state_.engine;
  ledgers_.assign(n_open_, TokenLedger(!first.stops.empty(), [engine](TokenId id) {
                    return engine->token_bytes(id).size();
                  }));
}

void GenerationJob::start() {
  const std::weak_ptr<GenerationJob> weak = weak_from_this();
  exchange_->on_peer_gone([weak] {
    if (const auto job = weak.lock()) job->on_peer_gone();
  });
  exchange_->on_drained([engine = state_.engine.load()] { engine->wake(); });
  if (auto refusal = take_rows()) {
    exchange_->post([job = shared_from_this(), error = *std::move(refusal)] { job->fail(error); });
    return;
  }
  auto generations = std::make_shared<std::vector<Generation>>();
  std::uint32_t first_choice = 0;
  for (GenerateRequest& request : plan_.requests) {
    if (!request.timeout && state_.options.request_timeout.count() > 0)
      request.timeout = state_.options.request_timeout;
    if (const auto most = state_.options.reasoning_budget)
      request.reasoning_budget = std::min(request.reasoning_budget.value_or(*most), *most);
    auto generation = state_.engine.load()->start(
        request, std::make_shared<Ear>(shared_from_this(), first_choice));
    if (!generation) {
      for (const Generation& started : *generations)
        state_.engine.load()->cancel(started, CancelReason::requested);
      exchange_->post([job = shared_from_this(), error = to_api_error(generation.error())] {
        job->fail(error);
      });
      return;
    }
    generations->push_back(*std::move(generation));
    first_choice += request.n;
  }
  exchange_->post(
      [job = shared_from_this(), generations] { job->on_started(std::move(*generations)); });
}

// The rows of the request's API key: refused beyond what it may have (SCH-44).
std::optional<ApiError> GenerationJob::take_rows() {
  if (!state_.key_rows) return std::nullopt;
  auto taken = state_.key_rows->take(exchange_->request(), static_cast<std::uint32_t>(n_open_));
  if (auto* error = std::get_if<ApiError>(&taken)) return *std::move(error);
  lease_ = std::get<KeyRows::Lease>(std::move(taken));
  return std::nullopt;
}

void GenerationJob::on_started(std::vector<Generation> generations) {
  generations_ = std::move(generations);
  for (Generation& generation : generations_) {
    transcript_.n_prompt += generation.prompt.size();
    transcript_.prompts.push_back(std::move(generation.prompt));
  }
  is_started_ = true;
  if (exchange_->is_closed()) on_peer_gone();
  deliver();
  if (plan_.stream && !is_done_) watch();
}

void GenerationJob::on_queued() {
  if (!plan_.stream) return;
  exchange_->post_after(kHeadersAfter, [job = shared_from_this()] {
    if (job->is_started_ && !job->is_done_) job->begin();
  });
}

void GenerationJob::on_progress(std::uint64_t fed, std::uint64_t total) {
  if (plan_.requests.size() == 1) {
    transcript_.n_fed = fed;
    transcript_.n_prompt = total;
  }
  if (plan_.stream && is_started_ && !is_done_) begin();
}

// On the engine's thread. One action delivers all that has come until it runs.
void GenerationJob::receive(std::uint32_t first_choice, GenerationEvent event) {
  {
    const std::scoped_lock lock(inbox_mutex_);
    n_waiting_bytes_ += size_of_event(event);
    inbox_.emplace_back(first_choice, std::move(event));
    if (std::exchange(is_delivery_posted_, true)) return;
  }
  exchange_->post([job = shared_from_this()] { job->deliver(); });
}

// On the engine's thread: the row is not fed while this holds (SCH-43). The flag goes up before the
// count is read, so that whoever lowers the count below the bound afterwards sees it and wakes.
bool GenerationJob::rests() {
  is_resting_ = true;
  if (is_behind()) return true;
  is_resting_ = false;
  return false;
}

bool GenerationJob::is_behind() const {
  return n_waiting_bytes_ + exchange_->pending_bytes() > kMaxPendingBytes / 2;
}

void GenerationJob::deliver() {
  if (!is_started_) return;  // on_started comes back
  std::vector<Arrival> arrivals;
  std::size_t n_bytes = 0;
  {
    const std::scoped_lock lock(inbox_mutex_);
    is_delivery_posted_ = false;
    arrivals.swap(inbox_);
    n_bytes = n_waiting_bytes_;
  }
  for (auto& [first_choice, event] : arrivals) take(first_choice, std::move(event));
  send(std::exchange(out_, {}));
  n_waiting_bytes_ -= n_bytes;
  // The bytes may never pass the exchange's own bound, whose crossing wakes the engine.
  if (is_resting_ && !is_behind()) state_.engine.load()->wake();
}

void GenerationJob::record(ChoiceTranscript& choice, GenerationEvent& event) {
  for (const text::OutputPiece& piece : event.pieces) append_piece(choice.blocks, piece);
  choice.prompt_logprobs.insert(choice.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                event.prompt_logprobs.end());
  if (!event.end) return;
  choice.end = std::move(event.end);
  state_.metrics.add_outcome(choice.end->outcome);
  --n_open_;
}

void GenerationJob::take(std::uint32_t first_choice, GenerationEvent event) {
  if (is_done_) return;
  has_tokens_ |= !event.tokens.empty();
  const std::uint32_t index = first_choice + event.choice;
  ChoiceTranscript& choice = transcript_.choices[index];
  StreamEvent news;
  news.choice = index;
  news.is_end = event.end.has_value();
  ledgers_[index].settle(event, news);
  news.pieces = event.pieces;
  record(choice, event);
  choice.tokens.insert(choice.tokens.end(), news.tokens.begin(), news.tokens.end());
  choice.logprobs.insert(choice.logprobs.end(), news.logprobs.begin(), news.logprobs.end());
  if (news.is_end) {
    const std::string& reason = choice.end->finish_reason;
    const Outcome& outcome = choice.end->outcome;
    if (reason == "failed" || reason == "cancelled") return fail(to_api_error(outcome));
  }
  if (plan_.stream) {
    begin();
    plan_.format->event(transcript_, news, out_);
  }
  if (n_open_ == 0) finish();
}

HttpReply GenerationJob::head() const {
  HttpReply reply;
  for (const std::string& reason : plan_.warnings)
    reply.headers.emplace_back("Warning", "199 kvasir \"" + reason + "\"");
  return reply;
}

void GenerationJob::begin() {
  if (std::exchange(is_begun_, true)) return;
  HttpReply reply = head();
  reply.content_type = std::string(plan_.format->stream_type());
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  plan_.format->begin(transcript_, reply.body);
  n_written_ += reply.body.size();
  last_taken_ = last_keep_alive_ = steady_clock::now();
  exchange_->begin_stream(std::move(reply));
}

void GenerationJob::send(std::string bytes) {
  if (bytes.empty()) return;
  n_written_ += bytes.size();
  exchange_->write(std::move(bytes));
}

void GenerationJob::finish() {
  is_done_ = true;
  lease_.release();
  state_.metrics.count_request(endpoint_, 200);
  if (plan_.stream) {
    plan_.format->finish(transcript_, out_);
    send(std::exchange(out_, {}));
    exchange_->end();
    return;
  }
  HttpReply reply = head();
  reply.body = json::write(plan_.format->whole(transcript_));
  exchange_->reply(std::move(reply));
}

void GenerationJob::fail(const ApiError& error) {
  if (std::exchange(is_done_, true)) return;
  lease_.release();
  cancel(CancelReason::requested);
  ApiError told = error;
  if (told.code == "queue_full" || told.code == "loading")
    told.retry_after_s = state_.retry_after_s();
  state_.metrics.count_request(endpoint_, told.status);
  if (!is_begun_) {
    exchange_->reply(error_reply(told, plan_.format->error_shape()));
    return;
  }
  log::warning("stream ended with an error: " + told.code + ": " + told.message);
  plan_.format->error(told, out_);
  send(std::exchange(out_, {}));
  exchange_->end();
}

void GenerationJob::cancel(CancelReason reason) {
  for (const Generation& generation : generations_)
    state_.engine.load()->cancel(generation, reason);
}

void GenerationJob::on_peer_gone() {
  cancel(CancelReason::consumer_closed);
  if (std::exchange(is_done_, true)) return;
  lease_.release();
  state_.metrics.count_request(endpoint_, 499);
}

void GenerationJob::watch() {
  if (is_done_) return;
  const auto now = steady_clock::now();
  if (is_begun_) {
    const std::uint64_t n_pending = exchange_->pending_bytes();
    const std::uint64_t n_taken = n_written_ > n_pending ? n_written_ - n_pending : 0;
    if (n_pending == 0 || n_taken > n_taken_) last_taken_ = now;
    n_taken_ = n_taken;
    const auto patience = state_.options.consumer_timeout;
    if (patience.count() > 0 && now - last_taken_ >= patience) {
      is_done_ = true;
      lease_.release();
      cancel(CancelReason::consumer_idle);
      state_.metrics.count_request(endpoint_, 499);
      exchange_->abort();
      return;
    }
    if (!has_tokens_ && now - last_keep_alive_ >= kKeepAlive) {
      last_keep_alive_ = now;
      std::string out;
      plan_.format->keep_alive(transcript_, out);
      send(std::move(out));
    }
  }
  exchange_->post_after(kWatch, [job = shared_from_this()] { job->watch(); });
}

}  // namespace kvasir::server
