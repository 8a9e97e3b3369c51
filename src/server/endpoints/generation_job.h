// GenerationJob: one HTTP request's generations from start to the last byte. It runs on the
// exchange's strand; engine events come in through ears, which never block the engine: what a slow
// reader has not taken counts, and its rows rest (SCH-43) or end (SCH-42). Others never wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/kvasir.h"
#include "server/endpoints/api_format.h"
#include "server/endpoints/key_rows.h"
#include "server/endpoints/token_ledger.h"
#include "server/endpoints/transcript.h"
#include "server/http/exchange.h"

namespace kvasir::server {

struct ServerState;

struct Plan {
  std::vector<GenerateRequest> requests;  // one a prompt, all with the same n
  bool stream = false;
  std::string model;  // echoed
  std::unique_ptr<ApiFormat> format;
  std::vector<std::string> warnings;  // SAMP-55: reasons, for the Warning header
};

class GenerationJob : public std::enable_shared_from_this<GenerationJob> {
 public:
  // On a worker thread: renders and tokenizes.
  static void run(ServerState& state,
                  std::string_view endpoint,
                  std::shared_ptr<Exchange> exchange,
                  Plan plan);

  GenerationJob(ServerState& state,
                std::string_view endpoint,
                std::shared_ptr<Exchange> exchange,
                Plan plan);

 private:
  class Ear;  // the listener of one prompt's choices

  void start();
  std::optional<ApiError> take_rows();
  void on_started(std::vector<Generation> generations);
  void on_queued();
  void on_progress(std::uint64_t fed, std::uint64_t total);
  void receive(std::uint32_t first_choice, GenerationEvent event);
  bool rests();
  bool is_behind() const;
  void deliver();
  void on_peer_gone();
  void take(std::uint32_t first_choice, GenerationEvent event);
  void record(ChoiceTranscript& choice, GenerationEvent& event);
  void begin();
  void finish();
  void fail(const ApiError& error);
  void cancel(CancelReason reason);
  void watch();  // every second: a reader that takes nothing, a prompt that takes long
  void send(std::string bytes);
  HttpReply head() const;

  ServerState& state_;
  std::string_view endpoint_;
  std::shared_ptr<Exchange> exchange_;
  Plan plan_;

  // On the exchange's strand.
  Transcript transcript_;
  std::vector<TokenLedger> ledgers_;  // [n_choices]
  std::vector<Generation> generations_;
  std::size_t n_open_ = 0;  // choices without an end
  KeyRows::Lease lease_;    // of the API key's rows
  bool is_started_ = false, is_begun_ = false, is_done_ = false, has_tokens_ = false;
  std::string out_;                            // written by the format, not yet sent
  std::uint64_t n_written_ = 0, n_taken_ = 0;  // bytes of the stream
  std::chrono::steady_clock::time_point last_taken_{}, last_keep_alive_{};

  using Arrival = std::pair<std::uint32_t, GenerationEvent>;  // [first choice of its prompt]
  std::mutex inbox_mutex_;
  std::vector<Arrival> inbox_;  // from the engine's thread
  bool is_delivery_posted_ = false;
  std::atomic<std::size_t> n_waiting_bytes_{0};  // of events that no delivery has handled
  std::atomic<bool> is_resting_{false};          // the engine found the reader behind
};

}  // namespace kvasir::server
