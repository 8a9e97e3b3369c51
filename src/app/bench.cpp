#include "kvasir/bench.h"

#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

struct Flags {
  OpenFlags open;
  bench::Options options;
  bool as_json = false;
};

int run(const Flags& flags) {
  bench::Options options = flags.options;
  auto open = resolve(flags.open);
  if (!open) return report_usage(open.error());
  options.open = *open;
  options.open.progress = make_progress_bar();
  const auto result = bench::run(options);
  if (!result) return report(result.error());
  std::fputs(flags.as_json ? (json::write(bench::to_json(*result)) + "\n").c_str()
                           : bench::to_table(*result).c_str(),
             stdout);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb =
      app.add_subcommand("bench", "Prefill and decode speed beside this machine's measured limits");
  add_open_flags(*verb, flags->open);
  verb->add_option("--prefill", flags->options.n_prefill, "Prompt tokens")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--decode", flags->options.n_decode, "Tokens after the prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--rows", flags->options.n_rows, "Rows that decode together")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  verb->add_option("--requests", flags->options.n_requests,
                   "Serve so many requests of that size too, --rows at a time")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 16));
  verb->add_option("--runs", flags->options.n_runs, "Timed runs after a short warm-up")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  verb->add_flag("--by-op", flags->options.by_op,
                 "Time each operation, beside the limits (a GPU waits for each, and is slower)");
  verb->add_flag("--json", flags->as_json, "One JSON object on standard output");
  verb->footer("Example:\n  kvasir bench model.gguf --prefill 512 --decode 64 --threads 2");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
