#include "formats/inspect.h"

#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

struct Flags {
  std::string model;
  bool as_json = false, with_tensors = false;
};

int run(const Flags& flags) {
  const auto files = formats::ModelFiles::open(flags.model);
  if (!files) return report(files.error());
  const auto description = formats::describe(*files);
  const std::string text =
      flags.as_json ? json::write(formats::description_json(description, flags.with_tensors)) + "\n"
                    : formats::description_text(description, flags.with_tensors);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("inspect", "What is in a model file");
  verb->add_option("model,-m,--model", flags->model, "Model folder or .gguf file")->required();
  verb->add_flag("--tensors", flags->with_tensors, "Every tensor with its shape and type");
  verb->add_flag("--json", flags->as_json, "JSON on standard output");
  verb->footer("Example:\n  kvasir inspect model.gguf --tensors");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
