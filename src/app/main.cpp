// kvasir: the command line. Flags are strict: an unknown one ends with exit code 2 and the nearest
// name.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "app/cli/aliases.h"
#include "app/cli/config_file.h"
#include "app/cli/nearest.h"
#include "app/cli/verbs.h"
#include "base/log.h"

namespace {

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  for (const auto& typed : app.remaining(/*recurse=*/true)) {
    const std::string near = kvasir::app::nearest_name(app, typed);
    if (!near.empty()) std::fprintf(stderr, "did you mean %s?\n", near.c_str());
  }
  std::fprintf(stderr, "See kvasir --help.\n");
  return kvasir::app::kExitUsage;
}

kvasir::log::Level level_of(const std::string& name) {
  using enum kvasir::log::Level;
  return name == "debug" ? debug : name == "info" ? info : name == "error" ? error : warning;
}

int run(int argc, char** argv) {
  CLI::App app{"Kvasir: an LLM inference engine for open models on your own hardware", "kvasir"};
  app.set_version_flag("--version", "kvasir 0.1.0");
  app.require_subcommand(1);
  app.fallthrough();
  std::string log_level;
  app.add_option("--log-level", log_level,
                 "Log to stderr from this level on (serve: info; else warning)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_flag_callback(
      "--verbose", [&] { log_level = "debug"; }, "As --log-level debug");
  kvasir::app::Action action;
  for (const auto add : kvasir::app::kVerbs) add(app, action);
  std::vector<std::string> verbs;
  for (CLI::App* verb : app.get_subcommands({})) {
    kvasir::app::read_environment(*verb);
    verbs.push_back(verb->get_name());
    for (const std::string& alias : verb->get_aliases()) verbs.push_back(alias);
  }
  std::vector<std::string> args = kvasir::app::normalized_arguments(argc, argv, verbs);
  if (const auto read = kvasir::app::append_config(args, app); !read) {
    std::fprintf(stderr, "error: %s\n", read.error().what.c_str());
    return kvasir::app::kExitUsage;
  }
  try {
    std::reverse(args.begin(), args.end());  // as the parser wants them
    app.parse(std::move(args));
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return usage_error(app, e);
  }
  if (log_level.empty()) log_level = app.got_subcommand("serve") ? "info" : "warning";
  kvasir::log::set_level(level_of(log_level));
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return kvasir::app::kExitFailure;
  }
}
