#include "kvasir/tokenize.h"

#include <cstdio>
#include <iostream>
#include <iterator>

#include "app/cli/common_flags.h"
#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

struct Flags {
  std::string model, text;
  bool no_special = false, parse_special = false, as_json = false;
};

int run(const Flags& flags) {
  const std::string text =
      flags.text == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : flags.text;
  const auto pieces =
      tokenize_with_model(flags.model, text, !flags.no_special, flags.parse_special);
  if (!pieces) return report(pieces.error());
  if (flags.as_json) {
    json::Array out;
    for (const TokenPiece& p : *pieces) out.push_back(piece_json(p));
    std::puts(json::write(out).c_str());
    return 0;
  }
  for (const TokenPiece& p : *pieces) {
    std::string quoted;
    json::append_quoted(quoted, p.text);
    std::printf("%8u  %s\n", p.id, quoted.c_str());
  }
  std::printf("%zu tokens\n", pieces->size());
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("tokenize", "Text to token ids and pieces");
  verb->add_option("model,-m,--model", flags->model, "Model folder or .gguf file")->required();
  verb->add_option("text", flags->text, "The text; - reads standard input")->required();
  verb->add_flag("--no-special", flags->no_special,
                 "Without the tokens the post-processor adds (BOS …)");
  verb->add_flag("--parse-special", flags->parse_special,
                 "Match special tokens written in the text");
  verb->add_flag("--json", flags->as_json, "JSON on standard output");
  verb->footer("Example:\n  kvasir tokenize model.gguf 'Hello, world' --json");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
