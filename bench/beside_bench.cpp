// A stream of tokens while a long prompt is prefilled beside it, through HTTP: how long the gaps
// between its pieces become. One process, one open model.
//   beside_bench MODEL [ROUNDS] [PROMPT_TOKENS]
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/log.h"
#include "http_client.h"
#include "kvasir/kvasir.h"
#include "server/server.h"

namespace kvasir {
namespace {

using namespace bench;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::uint32_t kPiecesBefore = 16;  // of the stream, before the prompt arrives
constexpr std::uint32_t kEndTokens = 512;    // at a prompt's end, where they cost most

double ms_between(Stopwatch::time_point a, Stopwatch::time_point b) {
  return Milliseconds(b - a).count();
}

class Client {
 public:
  Client(std::uint16_t port, std::uint32_t prompt_tokens)
      : port_(port), prompt_tokens_(prompt_tokens) {}

  // n_tokens of a short prompt.
  Stamps lone(std::uint32_t n_tokens, const std::function<bool(std::size_t)>& on_piece = {}) const {
    const json::Object message{{"role", "user"}, {"content", "Tell a long story."}};
    return stream(port_, "/v1/chat/completions",
                  json::Object{{"messages", json::Array{message}},
                               {"max_tokens", n_tokens},
                               {"temperature", 0},
                               {"ignore_eos", true},
                               {"cache", false}},
                  kChatPiece, on_piece);
  }
  // The long prompt without its last n_left_out tokens, for one token; milliseconds until that is
  // there.
  double prefill_ms(std::uint32_t n_left_out = 0) const {
    json::Array prompt;
    for (std::uint32_t i = 0; i + n_left_out < prompt_tokens_; ++i)
      prompt.emplace_back(300 + i * 7919 % 20000);
    const auto begin = Stopwatch::now();
    const Stamps stamps = stream(port_, "/v1/completions",
                                 json::Object{{"prompt", std::move(prompt)},
                                              {"max_tokens", 1},
                                              {"temperature", 0},
                                              {"ignore_eos", true},
                                              {"cache", false}},
                                 "\"text\":");
    return ms_between(begin, stamps.front());
  }

 private:
  std::uint16_t port_;
  std::uint32_t prompt_tokens_;
};

struct Gaps {
  std::vector<double> alone, beside;
  std::vector<double> prefill_alone_ms, prefill_beside_ms;
  std::vector<double> end_ms;  // of the prompt's last kEndTokens, alone
};

// Gaps before the prompt arrives count as alone, those that end while it is fed as beside.
void run_round(const Client& client, Gaps& gaps) {
  gaps.prefill_alone_ms.push_back(client.prefill_ms());
  gaps.end_ms.push_back(gaps.prefill_alone_ms.back() - client.prefill_ms(kEndTokens));
  std::atomic<bool> is_prefilling{false}, has_prefilled{false};
  std::thread prompt;
  Stamps stamps;
  std::vector<bool> was_beside;
  constexpr std::uint32_t kMost = 2000;
  const auto on_piece = [&](std::size_t n_pieces) {
    was_beside.push_back(is_prefilling && !has_prefilled);
    if (n_pieces == kPiecesBefore) {
      is_prefilling = true;
      prompt = std::thread([&] {
        gaps.prefill_beside_ms.push_back(client.prefill_ms());
        has_prefilled = true;
      });
    }
    return !has_prefilled;
  };
  stamps = client.lone(kMost, on_piece);
  if (prompt.joinable()) prompt.join();
  for (std::size_t i = 2; i < stamps.size(); ++i) {
    const double gap = ms_between(stamps[i - 1], stamps[i]);
    if (i < kPiecesBefore) gaps.alone.push_back(gap);
    if (was_beside[i] && was_beside[i - 1]) gaps.beside.push_back(gap);
  }
}

// The bound: 1.5 gaps of the stream alone and what a share of the prompt costs, its mean one and
// one at its end.
void print(const Gaps& gaps, std::uint32_t prompt_tokens, std::uint32_t prefill_share) {
  const double median = quantile(gaps.alone, 0.5), p99 = quantile(gaps.beside, 0.99);
  const double prefill_ms = quantile(gaps.prefill_alone_ms, 0.5);
  std::printf(
      "alone: median gap %.2f ms; a prompt of %u tokens alone %.0f ms, beside the stream %.0f ms\n",
      median, prompt_tokens, prefill_ms, quantile(gaps.prefill_beside_ms, 0.5));
  std::printf("beside it: %zu gaps, median %.2f ms, p99 %.2f ms, longest %.2f ms\n",
              gaps.beside.size(), quantile(gaps.beside, 0.5), p99, quantile(gaps.beside, 1.0));
  const struct {
    const char* name;
    double ms;
  } shares[] = {{"mean", prefill_ms * prefill_share / prompt_tokens},
                {"last", quantile(gaps.end_ms, 0.5) * prefill_share / kEndTokens}};
  for (const auto& share : shares)
    std::printf(
        "bound: 1.5 medians + the prompt's %s share of %u tokens (%.2f ms) = %.2f ms; p99 is %.2f "
        "of it\n",
        share.name, prefill_share, share.ms, 1.5 * median + share.ms,
        p99 / (1.5 * median + share.ms));
}

int run(const std::string& model, int n_rounds, std::uint32_t prompt_tokens) {
  OpenOptions options;
  options.model = model;
  // The prompt alone in steps of a share too, which is what a gap beside it may cost.
  options.max_step_tokens = options.prompt_tokens_beside() + options.max_rows;
  auto engine = Engine::open(options);
  if (!engine) fail(engine.error().what);
  if ((*engine)->summary().context_length <= prompt_tokens || prompt_tokens <= kEndTokens)
    fail("the prompt must be longer than 512 tokens and shorter than the model's context");
  server::ServeOptions serve;
  log::set_level(log::Level::warning);
  serve.port = 0;
  auto server = server::Server::start(serve);
  if (!server) fail(server.error().what);
  (*server)->serve(**engine);
  const Client client((*server)->port(), prompt_tokens);
  client.lone(16);
  Gaps gaps;
  for (int i = 0; i < n_rounds; ++i) run_round(client, gaps);
  if (gaps.beside.empty()) fail("the prompt was fed before the stream's next piece");
  print(gaps, prompt_tokens, options.prompt_tokens_beside());
  (*server)->shutdown(std::chrono::seconds(1));
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  if (argc < 2) kvasir::bench::fail("usage: beside_bench MODEL [ROUNDS] [PROMPT_TOKENS]");
  const int n_rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const int n_tokens = argc > 3 ? std::atoi(argv[3]) : 4096;
  if (n_rounds < 1 || n_tokens < 256)
    kvasir::bench::fail("at least one round of at least 256 tokens");
  return kvasir::run(argv[1], n_rounds, static_cast<std::uint32_t>(n_tokens));
}
