#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>

#include "app/cli/common_flags.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"
#include "kvasir/kvasir.h"

namespace kvasir::app {
namespace {

struct Flags {
  OpenFlags open;
  SamplingFlags sampling;
  std::string prompt;
  std::string system;
  std::vector<std::string> stops;
  std::uint32_t max_tokens = 0;
  std::uint32_t n = 1;
  std::optional<std::uint32_t> top_logprobs;
  bool raw = false, as_json = false;
};

std::string read_prompt(const std::string& flag) {
  if (flag != "-") return flag;
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

GenerateRequest make_request(const Flags& flags, const Engine& engine) {
  GenerateRequest request;
  request.sampling = resolve(flags.sampling, engine.default_sampling());
  request.stops = flags.stops;
  request.n = flags.n;
  request.splits_reasoning = false;
  request.sampling.logprobs = flags.top_logprobs.has_value();
  request.sampling.top_logprobs = flags.top_logprobs.value_or(0);
  if (flags.max_tokens > 0) request.max_tokens = flags.max_tokens;
  const std::string prompt = read_prompt(flags.prompt);
  if (flags.raw || !engine.summary().has_chat_template()) {
    request.prompt = prompt;
    return request;
  }
  if (!flags.system.empty())
    request.messages.push_back(json::Object{{"role", "system"}, {"content", flags.system}});
  request.messages.push_back(json::Object{{"role", "user"}, {"content", prompt}});
  return request;
}

json::Value to_json(const std::vector<Logprobs>& logprobs) {
  json::Array out;
  for (const Logprobs& l : logprobs) {
    json::Array top;
    for (const TokenLogprob& t : l.top)
      top.push_back(json::Object{{"token", t.token}, {"logprob", t.logprob}});
    out.push_back(json::Object{{"logprob", l.logprob}, {"top", std::move(top)}});
  }
  return out;
}

json::Value to_json(const Generated& generated, const ModelSummary& model) {
  json::Array choices;
  for (const Choice& c : generated.choices) {
    json::Array tokens;
    for (const TokenId t : c.tokens) tokens.push_back(t);
    json::Object choice{{"text", c.text},
                        {"tokens", tokens},
                        {"finish_reason", c.finish_reason},
                        {"seed", std::to_string(c.seed)}};
    if (!c.logprobs.empty()) choice["logprobs"] = to_json(c.logprobs);
    if (!c.error.empty()) choice["error"] = c.error;
    choices.push_back(std::move(choice));
  }
  return json::Object{{"model", model.name},
                      {"random_weights", model.has_random_weights},
                      {"choices", std::move(choices)},
                      {"prompt_tokens", generated.prompt_tokens},
                      {"cached_tokens", generated.cached_tokens},
                      {"generated_tokens", generated.generated_tokens},
                      {"prefill_ms", generated.prefill_ms},
                      {"decode_ms", generated.decode_ms}};
}

int exit_code(const Generated& generated) {
  for (const Choice& c : generated.choices) {
    if (c.finish_reason == "failed") return report({Errc::device, c.error});
    if (c.finish_reason == "cancelled") return kExitInterrupted;
  }
  return 0;
}

int run(const Flags& flags) {
  auto options = resolve(flags.open);
  if (!options) return report_usage(options.error());
  options->progress = make_progress_bar();
  auto engine = Engine::open(*options);
  if (!engine) return report(engine.error());

  const bool live = !flags.as_json && flags.n == 1;
  const auto& interrupted = catch_interrupts();
  const auto generated = (*engine)->generate(
      make_request(flags, **engine),
      [&](const TextDelta& delta) {
        if (!live) return true;
        std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
        std::fflush(stdout);
        return true;
      },
      &interrupted, make_prompt_bar());
  if (!generated) return report(generated.error());
  if (flags.as_json) {
    std::puts(json::write(to_json(*generated, (*engine)->summary())).c_str());
  } else if (live) {
    std::puts("");
  } else {
    for (std::size_t i = 0; i < generated->choices.size(); ++i) {
      std::printf("[%zu] %s\n", i, generated->choices[i].text.c_str());
    }
  }
  return exit_code(*generated);
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("generate", "Answer one prompt")->alias("gen");
  add_open_flags(*verb, flags->open);
  add_sampling_flags(*verb, flags->sampling);
  verb->add_option("-p,--prompt", flags->prompt, "The prompt; - reads standard input")->required();
  verb->add_option("--system", flags->system, "System message");
  verb->add_option("-n,--max-tokens,--n-predict", flags->max_tokens, "Most tokens to generate");
  verb->add_option("--choices", flags->n, "Answers that share the prompt")
      ->check(CLI::Range(1, 64));
  verb->add_option("--logprobs", flags->top_logprobs,
                   "With --json: log-probability of each token, and of the K likeliest")
      ->check(CLI::Range(0, 20));
  verb->add_option("--stop", flags->stops, "Stop string; may be given again");
  verb->add_flag("--raw", flags->raw, "No chat template: continue the text");
  verb->add_flag("--json", flags->as_json, "One JSON object on standard output");
  verb->footer(
      "Examples:\n  kvasir generate model.gguf -p 'Why is the sky blue?' -n 100 --temp 0\n"
      "  cat report.txt | kvasir generate ./Qwen3-0.6B --prompt - --system 'Summarise.' --json");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
