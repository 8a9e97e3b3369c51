// The commands: one line a verb. Each adds its subcommand and flags, and leaves what to run in
// `action`.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <functional>

namespace kvasir::app {

inline constexpr int kExitFailure = 1, kExitUsage = 2, kExitDoesNotFit = 3, kExitInterrupted = 130;

using Action = std::function<int()>;
using AddVerb = void (*)(CLI::App& app, Action& action);

void add_serve(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_embed(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_get(CLI::App& app, Action& action);
void add_scan(CLI::App& app, Action& action);
void add_ls(CLI::App& app, Action& action);
void add_gc(CLI::App& app, Action& action);
void add_fit(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_limits(CLI::App& app, Action& action);
void add_synth(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);

inline constexpr std::array<AddVerb, 15> kVerbs{
    add_serve,   add_chat,     add_generate, add_embed, add_get,    add_scan,  add_ls,    add_gc,
    add_inspect, add_tokenize, add_fit,      add_bench, add_limits, add_synth, add_verify};

}  // namespace kvasir::app
