#include "kvasir/synth.h"

#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/hub_support.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"
#include "base/thread_pool.h"

namespace kvasir::app {
namespace {

int run(synth::Options options) {
  if (options.n_threads == 0) options.n_threads = default_thread_count();
  options.progress = make_progress_bar();
  const auto made = synth::write(options);
  if (!made) return report(made.error());
  std::printf("%s: %llu random parameters in %llu tensors, mostly %s, %s%s\n",
              options.out.string().c_str(), static_cast<unsigned long long>(made->n_parameters),
              static_cast<unsigned long long>(made->n_tensors), made->type.c_str(),
              size_text(made->size_bytes).c_str(),
              made->has_tokenizer ? "" : "; no tokenizer: its vocabulary does not hold all bytes");
  return 0;
}

}  // namespace

void add_synth(CLI::App& app, Action& action) {
  auto options = std::make_shared<synth::Options>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand(
      "synth", "Write a checkpoint of a given shape with random weights, to measure its speed");
  verb->add_option("--config", options->config,
                   "Shape: " + synth::shape_names() + "; or a config.json")
      ->required();
  verb->add_option("--quant", options->quant, "bf16, f16, f32; 4, 8; of a .gguf q4_0, q4_1, q8_0")
      ->capture_default_str();
  verb->add_option("--group-size", options->group_size, "Weights that share a scale (4 and 8)")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Other weights")->capture_default_str();
  verb->add_option("--threads", options->n_threads, "Threads; 0: as many as there are cores");
  verb->add_option("out", options->out, "New folder, or file that ends in .gguf")->required();
  verb->footer(
      "Everything that opens the result says that its weights are random.\n"
      "Examples:\n  kvasir synth --config qwen3-0.6b --quant 4 ./qwen3-0.6b-random\n"
      "  kvasir synth --config ./config.json --quant q8_0 random.gguf");
  verb->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace kvasir::app
