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

void add_chat(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);

inline constexpr std::array<AddVerb, 6> kVerbs{add_chat,     add_generate, add_inspect,
                                               add_tokenize, add_bench,    add_verify};

}  // namespace kvasir::app
