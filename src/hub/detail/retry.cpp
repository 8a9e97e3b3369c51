#include "hub/detail/retry.h"

#include <algorithm>
#include <charconv>
#include <thread>

namespace kvasir::hub {
namespace {

using std::chrono::milliseconds;
constexpr int kMaxRounds = 10'000;  // a server that gives a byte a time ends some day
constexpr milliseconds kLongestDelay{30'000}, kLongestRetryAfter{120'000}, kSlice{20};
constexpr std::size_t kMaxServerMessage = 300;

milliseconds delay_of(const HubOptions& options, const HttpReply& reply, int n_failures) {
  const int doublings = std::clamp(n_failures - 1, 0, 16);
  milliseconds delay = std::min(options.retry_delay * (1 << doublings), kLongestDelay);
  long seconds = 0;
  const std::string& text = reply.headers.retry_after;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (end.ec == std::errc() && seconds > 0)
    delay = std::max(delay, std::min<milliseconds>(std::chrono::seconds(std::min(seconds, 3600L)),
                                                   kLongestRetryAfter));
  return delay;
}

std::string server_message(const HttpReply& reply) {
  std::string text = reply.headers.error_message.substr(0, kMaxServerMessage);
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
  return text.empty() ? text : ": " + text;
}

std::string access_hint(const std::string& repo, const HubOptions& options) {
  return options.token.empty()
             ? "; the repository is gated, private or does not exist: accept its terms at " +
                   options.endpoint + "/" + repo + " and set HF_TOKEN"
             : "; the repository is gated or private: accept its terms at " + options.endpoint +
                   "/" + repo + ", or use an HF_TOKEN that may read it";
}

}  // namespace

bool Retry::again(const HttpOutcome& outcome, bool made_progress) {
  if (!outcome.is_transient() || ++n_rounds_ > kMaxRounds) return false;
  n_failures_ = made_progress ? 1 : n_failures_ + 1;
  if (n_failures_ > options_.max_retries) return false;
  return sleep(delay_of(options_, outcome.reply, n_failures_));
}

bool Retry::sleep(milliseconds time) const {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (cancel_ && *cancel_) return false;
    std::this_thread::sleep_for(std::min(kSlice, time));
  }
  return !(cancel_ && *cancel_);
}

Error http_error(const HttpOutcome& outcome,
                 const std::string& subject,
                 const std::string& repo,
                 const HubOptions& options) {
  if (outcome.transport == Transport::cancelled) return {Errc::cancelled, "cancelled"};
  if (outcome.transport != Transport::done) return io_error(subject + ": " + outcome.what);
  const long status = outcome.reply.status;
  const std::string what = subject + ": HTTP " + std::to_string(status);
  const std::string told = server_message(outcome.reply);
  if (status == 401 || status == 403)
    return {Errc::io, what + told + access_hint(repo, options), "gated_repository"};
  if (status == 404)
    return not_found(what + (told.empty() ? ": no such repository, revision or file" : told));
  if (status == 429) return {Errc::capacity, what + told + "; the server asks to come back later"};
  return io_error(what + told);
}

}  // namespace kvasir::hub
