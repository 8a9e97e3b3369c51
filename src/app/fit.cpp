#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/verbs.h"
#include "kvasir/fit_model.h"

namespace kvasir::app {
namespace {

struct Flags {
  OpenFlags open;
  bool as_json = false;
};

int run(const Flags& flags) {
  FitOptions options;
  auto open = resolve(flags.open);
  if (!open) return report_usage(open.error());
  options.open = *std::move(open);
  const auto result = fit_model(options);
  if (!result) return report(result.error());
  std::fputs(flags.as_json ? (json::write(fit::to_json(*result)) + "\n").c_str()
                           : fit::to_text(*result).c_str(),
             stdout);
  return result->report.fits ? 0 : kExitDoesNotFit;
}

}  // namespace

void add_fit(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand(
      "fit", "Whether a model fits this machine, its longest context and predicted speed");
  add_open_flags(*verb, flags->open);
  verb->add_flag("--json", flags->as_json, "One JSON object on standard output, sizes in bytes");
  verb->footer(
      "Exit code 3: the context asked for (default 8192 or the model's) does not fit.\n"
      "Example:\n  kvasir fit model.gguf --ctx 32768 --kv-quant 4 --memory-budget 16GiB");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
