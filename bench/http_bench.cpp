// One stream through HTTP beside the same generation by the library, in one process on one open
// model, interleaved: what the server costs, without the differences between two processes.
//   http_bench MODEL [PAIRS] [TOKENS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "http_client.h"
#include "kvasir/kvasir.h"
#include "server/server.h"

namespace kvasir {
namespace {

using namespace bench;

constexpr const char* kPrompt = "Tell a long story about a lighthouse.";

Stamps run_direct(Engine& engine, std::uint32_t n_tokens) {
  GenerateRequest request;
  request.messages = json::Array{json::Object{{"role", "user"}, {"content", kPrompt}}};
  request.max_tokens = n_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.uses_cache = false;
  Stamps stamps;
  const auto done = engine.generate(request, [&](const TextDelta&) {
    stamps.push_back(Stopwatch::now());
    return true;
  });
  if (!done) fail(done.error().what);
  return stamps;
}

Stamps run_http(std::uint16_t port, std::uint32_t n_tokens) {
  return stream(
      port, "/v1/chat/completions",
      json::Object{{"messages", json::Array{json::Object{{"role", "user"}, {"content", kPrompt}}}},
                   {"max_tokens", n_tokens},
                   {"temperature", 0},
                   {"ignore_eos", true},
                   {"cache", false}},
      kChatPiece);
}

struct Side {
  std::vector<double> rates;    // pieces a second, one a run
  std::vector<double> gaps_ms;  // of all runs

  void add(const Stamps& stamps) {
    if (stamps.size() < 2) fail("a run gave no text");
    const std::chrono::duration<double> span = stamps.back() - stamps.front();
    rates.push_back(static_cast<double>(stamps.size() - 1) / span.count());
    for (std::size_t i = 1; i < stamps.size(); ++i)
      gaps_ms.push_back(
          std::chrono::duration<double, std::milli>(stamps[i] - stamps[i - 1]).count());
  }
};

void print(const Side& direct, const Side& http, std::uint32_t n_tokens) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < direct.rates.size(); ++i)
    ratios.push_back(http.rates[i] / direct.rates[i]);
  std::printf(
      "one stream, %u tokens, %zu pairs: direct %.1f tok/s, HTTP %.1f tok/s; ratio of a pair: "
      "median %.4f, "
      "quartiles %.4f and %.4f\n",
      n_tokens, ratios.size(), quantile(direct.rates, 0.5), quantile(http.rates, 0.5),
      quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75));
  for (const double share : {0.5, 0.99}) {
    const double a = quantile(direct.gaps_ms, share), b = quantile(http.gaps_ms, share);
    std::printf("gap between pieces, p%.0f: direct %.3f ms, HTTP %.3f ms, added %.3f ms\n",
                share * 100, a, b, b - a);
  }
}

int run(const std::string& model, int n_pairs, std::uint32_t n_tokens) {
  OpenOptions options;
  options.model = model;
  auto engine = Engine::open(options);
  if (!engine) fail(engine.error().what);
  server::ServeOptions serve;
  log::set_level(log::Level::warning);
  serve.port = 0;
  auto server = server::Server::start(serve);
  if (!server) fail(server.error().what);
  (*server)->serve(**engine);
  const std::uint16_t port = (*server)->port();
  Side direct, http;
  run_direct(**engine, n_tokens);
  run_http(port, n_tokens);
  for (int i = 0; i < n_pairs; ++i) {
    const bool http_first = i % 2 == 1;
    if (http_first) http.add(run_http(port, n_tokens));
    direct.add(run_direct(**engine, n_tokens));
    if (!http_first) http.add(run_http(port, n_tokens));
  }
  print(direct, http, n_tokens);
  (*server)->shutdown(std::chrono::seconds(1));
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  if (argc < 2) kvasir::bench::fail("usage: http_bench MODEL [PAIRS] [TOKENS]");
  const int n_pairs = argc > 2 ? std::atoi(argv[2]) : 15;
  const int n_tokens = argc > 3 ? std::atoi(argv[3]) : 128;
  if (n_pairs < 1 || n_tokens < 8) kvasir::bench::fail("at least one pair of at least 8 tokens");
  return kvasir::run(argv[1], n_pairs, static_cast<std::uint32_t>(n_tokens));
}
