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
  std::vector<std::string> texts;
  std::optional<std::string> instruction;
  std::optional<std::uint32_t> dimensions;
  bool truncates = false, as_json = false;
};

// The texts given, or one a line of standard input.
EmbedRequest make_request(const Flags& flags) {
  EmbedRequest request;
  request.instruction = flags.instruction;
  request.dimensions = flags.dimensions;
  request.truncates = flags.truncates;
  for (const std::string& text : flags.texts) request.inputs.push_back({text, {}});
  const bool reads_input = flags.texts.empty() || flags.texts == std::vector<std::string>{"-"};
  if (!reads_input) return request;
  request.inputs.clear();
  for (std::string line; std::getline(std::cin, line);)
    request.inputs.push_back({std::move(line), {}});
  return request;
}

json::Value to_json(const std::vector<float>& vector) {
  json::Array out;
  for (const float x : vector) out.push_back(static_cast<double>(x));
  return out;
}

int run(const Flags& flags) {
  auto options = resolve(flags.open);
  if (!options) return report_usage(options.error());
  options->progress = make_progress_bar();
  const auto engine = Engine::open(*options);
  if (!engine) return report(engine.error());
  const auto& interrupted = catch_interrupts();
  const auto embedded = (*engine)->embed(make_request(flags), &interrupted);
  if (!embedded) return interrupted ? kExitInterrupted : report(embedded.error());
  if (!flags.as_json) {
    for (const auto& vector : embedded->vectors) std::puts(json::write(to_json(vector)).c_str());
    return 0;
  }
  json::Array vectors;
  for (const auto& vector : embedded->vectors) vectors.push_back(to_json(vector));
  const json::Object out{{"model", (*engine)->summary().name},
                         {"embeddings", std::move(vectors)},
                         {"prompt_tokens", embedded->prompt_tokens}};
  std::puts(json::write(out).c_str());
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("embed", "Texts to vectors, by an embedding model");
  add_open_flags(*verb, flags->open);
  verb->add_option("text", flags->texts,
                   "The texts; none, or -: the lines of standard input, one text each");
  verb->add_option(
      "--instruction", flags->instruction,
      "The texts are queries for this task: 'Instruct: …' and 'Query:' go before them");
  verb->add_option("--dimensions", flags->dimensions,
                   "Keep so many of each vector's numbers, normalised again")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--truncate", flags->truncates,
                 "Cut texts longer than the model's context instead of refusing them");
  verb->add_flag("--json", flags->as_json,
                 "One JSON object on standard output; else one vector a line");
  verb->footer(
      "Examples:\n  kvasir embed ./bge-small-en 'a cat on a mat' 'a dog in a fog'\n"
      "  kvasir embed ./Qwen3-Embedding-0.6B 'capital of China' --dimensions 256 \\\n"
      "    --instruction 'Given a web search query, retrieve passages that answer it' --json\n"
      "  cat lines.txt | kvasir embed ./bge-small-en > vectors.jsonl");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
