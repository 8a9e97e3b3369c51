#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/verbs.h"
#include "base/byte_size.h"
#include "kvasir/fit_model.h"

namespace kvasir::app {
namespace {

struct Flags {
  OpenFlags open;
  std::string memory_budget;
  bool as_json = false;
};

int run(const Flags& flags) {
  FitOptions options;
  auto open = resolve(flags.open);
  if (!open) return report(open.error());
  options.open = *std::move(open);
  if (!flags.memory_budget.empty()) {
    const auto budget = parse_size("memory-budget", flags.memory_budget, kGigabyte);
    if (!budget) return report(budget.error());
    options.memory_budget_bytes = *budget;
  }
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
  verb->add_option("--memory-budget", flags->memory_budget,
                   "Memory for everything, in GB or with a unit (kB … TiB); default: 75 % of what "
                   "this machine has to give");
  verb->add_flag("--json", flags->as_json, "One JSON object on standard output, sizes in bytes");
  verb->footer(
      "Exit code 3: the context asked for (default 8192 or the model's) does not fit.\n"
      "Example:\n  kvasir fit model.gguf --ctx 32768 --kv-quant 4 --memory-budget 16GiB");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
