#include "backend/cpu/limits.h"

#include <cstdio>

#include "app/cli/verbs.h"
#include "base/thread_pool.h"
#include "json/json.h"

namespace kvasir::app {
namespace {

using backend::cpu::Limits;
using backend::cpu::MatrixLimit;

struct Flags {
  int n_threads = 0;
  bool as_json = false;
};

json::Value to_json(const Limits& limits) {
  json::Array matrix;
  for (const MatrixLimit& limit : limits.matrix)
    matrix.push_back(json::Object{
        {"name", limit.name}, {"gop_s_one_thread", limit.gop_s_one}, {"gop_s", limit.gop_s}});
  return json::Object{
      {"threads", limits.n_threads},       {"read_gb_s_one_thread", limits.read_gb_s_one},
      {"read_gb_s", limits.read_gb_s},     {"fma_gflop_s_one_thread", limits.fma_gflop_s_one},
      {"fma_gflop_s", limits.fma_gflop_s}, {"matrix", std::move(matrix)},
      {"shared_time", limits.shared_time}};
}

void print(const Limits& limits) {
  const auto line = [](const char* name, double one, double all, const char* unit) {
    std::printf("%-18s %10.1f %10.1f  %s\n", name, one, all, unit);
  };
  std::printf("%-18s %10s %9d threads\n", "", "1 thread", limits.n_threads);
  line("memory reads", limits.read_gb_s_one, limits.read_gb_s, "GB/s");
  line("f32 FMA", limits.fma_gflop_s_one, limits.fma_gflop_s, "GFLOP/s");
  for (const MatrixLimit& limit : limits.matrix)
    line(limit.name.c_str(), limit.gop_s_one, limit.gop_s, "GOP/s");
  if (limits.shared_time >= 0)
    std::printf("other threads on these cores: %.0f %% of the time\n", 100 * limits.shared_time);
}

int run(const Flags& flags) {
  const Limits limits =
      backend::cpu::measure_limits(flags.n_threads > 0 ? flags.n_threads : default_thread_count());
  if (flags.as_json) {
    std::puts(json::write(to_json(limits)).c_str());
  } else {
    print(limits);
  }
  return 0;
}

}  // namespace

void add_limits(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand(
      "limits", "What this machine can do: memory reads and matrix instructions, in seconds");
  verb->add_option("--threads", flags->n_threads, "Threads; 0: as many as there are cores")
      ->check(CLI::Range(0, 1024));
  verb->add_flag("--json", flags->as_json, "One JSON object on standard output");
  verb->footer("Other work on the machine makes the figures too low.\nExample:\n  kvasir limits");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
