#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "app/cli/common_flags.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"
#include "kvasir/kvasir.h"

namespace kvasir::app {
namespace {

struct Flags {
  OpenFlags open;
  SamplingFlags sampling;
  std::string system;
  std::uint32_t max_tokens = 0;
};

// The conversation, and what it takes to keep it inside the context.
class Chat {
 public:
  Chat(Engine& engine, const Flags& flags) : engine_(engine) {
    request_.sampling = resolve(flags.sampling, engine.default_sampling());
    if (flags.max_tokens > 0) request_.max_tokens = flags.max_tokens;
    if (!flags.system.empty()) add("system", flags.system);
  }

  void add(const char* role, const std::string& content) {
    request_.messages.push_back(json::Object{{"role", role}, {"content", content}});
  }

  void forget_all() { request_.messages.erase(first_turn(), request_.messages.end()); }

  // Drops the oldest question and answer while the conversation leaves no room to answer (SRV-72).
  Status fit_context() {
    const std::uint64_t reserve = request_.max_tokens.value_or(256);
    const std::uint64_t context = engine_.summary().context_length;
    while (true) {
      KVASIR_TRY(const std::uint64_t n_tokens, engine_.count_tokens(request_));
      if (n_tokens + std::min(reserve, context / 2) <= context) return {};
      if (request_.messages.end() - first_turn() < 3) return {};
      request_.messages.erase(first_turn(), first_turn() + 2);
      std::printf(
          "[the oldest question and answer no longer fit the context of %llu tokens and were "
          "dropped]\n",
          static_cast<unsigned long long>(context));
    }
  }

  Result<Generated> answer(const std::atomic<bool>& interrupted) {
    return engine_.generate(
        request_,
        [this](const TextDelta& delta) {
          show(delta);
          return true;
        },
        &interrupted, make_prompt_bar());
  }

  void take_back_question() { request_.messages.pop_back(); }

 private:
  json::Array::iterator first_turn() {
    const auto begin = request_.messages.begin();
    const bool has_system =
        begin != request_.messages.end() && begin->string_or("role", "") == "system";
    return has_system ? begin + 1 : begin;
  }

  // Reasoning is dimmed on a terminal, and left out of what is piped on.
  void show(const TextDelta& delta) {
    const bool is_reasoning = delta.kind == text::OutputKind::reasoning;
    if (is_reasoning && !stdout_is_terminal()) return;
    if (is_reasoning && !delta.text.empty()) std::fputs("\033[2m", stdout);
    std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
    if (is_reasoning && !delta.text.empty()) std::fputs("\033[22m", stdout);
    std::fflush(stdout);
  }

  Engine& engine_;
  GenerateRequest request_;
};

void print_speed(const Generated& g) {
  const double prefill_tokens = static_cast<double>(g.prompt_tokens - g.cached_tokens);
  std::fprintf(
      stderr,
      "\n[%llu prompt tokens, %llu from the cache, %.0f tok/s; %llu generated, %.1f tok/s]\n",
      static_cast<unsigned long long>(g.prompt_tokens),
      static_cast<unsigned long long>(g.cached_tokens),
      g.prefill_ms > 0 ? prefill_tokens / g.prefill_ms * 1e3 : 0.0,
      static_cast<unsigned long long>(g.generated_tokens),
      g.decode_ms > 0 ? static_cast<double>(g.generated_tokens) / g.decode_ms * 1e3 : 0.0);
}

Status take_turn(Chat& chat, const std::string& question, const std::atomic<bool>& interrupted) {
  chat.add("user", question);
  auto fits = chat.fit_context();
  if (!fits) {
    chat.take_back_question();
    return fits;
  }
  auto answer = chat.answer(interrupted);
  clear_interrupt();
  if (!answer) {
    chat.take_back_question();
    return std::move(answer).error();
  }
  const Choice& choice = answer->choices.front();
  std::puts("");
  if (choice.finish_reason == "failed") {
    chat.take_back_question();
    return Error{Errc::device, choice.error};
  }
  chat.add("assistant", choice.text);
  if (stdout_is_terminal()) print_speed(*answer);
  return {};
}

int run(const Flags& flags) {
  auto options = resolve(flags.open);
  if (!options) return report_usage(options.error());
  options->progress = make_progress_bar();
  auto engine = Engine::open(*options);
  if (!engine) return report(engine.error());
  const ModelSummary& model = (*engine)->summary();
  if (!model.has_chat_template())
    return report(unsupported("this model has no chat template; use kvasir generate --raw"));
  std::fprintf(
      stderr,
      "%s%s · %s · context %u · /new starts over, /quit or Ctrl-D leaves, Ctrl-C stops an answer\n",
      model.name.c_str(), model.has_random_weights ? " (random weights)" : "",
      model.backend.c_str(), model.context_length);

  Chat chat(**engine, flags);
  const auto& interrupted = catch_interrupts();
  bool failed = false;
  std::string line;
  while (true) {
    if (stdout_is_terminal()) std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/quit" || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/new") {
      chat.forget_all();
      continue;
    }
    const Status turn = take_turn(chat, line, interrupted);
    if (!turn) report(turn.error());
    failed = !turn;
  }
  return failed ? kExitFailure : 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model in the terminal");
  add_open_flags(*verb, flags->open);
  add_sampling_flags(*verb, flags->sampling);
  verb->add_option("--system", flags->system, "System message");
  verb->add_option("-n,--max-tokens", flags->max_tokens, "Most tokens of one answer");
  verb->footer(
      "Examples:\n  kvasir chat model.gguf\n  echo 'Name three rivers.' | kvasir chat model.gguf "
      "--temp 0");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
