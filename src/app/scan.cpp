#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/hub_support.h"
#include "app/cli/verbs.h"
#include "hub/registry.h"

namespace kvasir::app {
namespace {

struct Flags {
  HubFlags hub;
  std::vector<std::string> folders;
  bool as_json = false;
};

json::Value to_json(const hub::ScanReport& report) {
  json::Array skipped;
  for (const auto& [path, reason] : report.skipped)
    skipped.push_back(json::Object{{"path", path.string()}, {"reason", reason}});
  return json::Object{{"models", report.n_models},
                      {"read", report.n_read},
                      {"gone", report.n_gone},
                      {"skipped", std::move(skipped)}};
}

void print(const hub::ScanReport& report) {
  for (const auto& [path, reason] : report.skipped) {
    // Most reasons begin with the path they are about.
    const bool says_where = reason.starts_with(path.string());
    std::printf("skipped %s%s%s\n", says_where ? "" : path.c_str(), says_where ? "" : ": ",
                reason.c_str());
  }
  std::printf("%zu models (%zu new or changed, %zu gone, %zu skipped)\n", report.n_models,
              report.n_read, report.n_gone, report.skipped.size());
}

int run(const Flags& flags) {
  const auto options = hub_options(flags.hub);
  if (!options) return report(options.error());
  auto registry = hub::Registry::open(options->registry);
  if (!registry) return report(registry.error());
  const auto scanned = registry->scan(*options, {flags.folders.begin(), flags.folders.end()});
  if (!scanned) return report(scanned.error());
  if (flags.as_json) {
    std::puts(json::write(to_json(*scanned)).c_str());
  } else {
    print(*scanned);
  }
  return 0;
}

}  // namespace

void add_scan(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("scan", "Look for models on disk and remember them");
  verb->add_option("folders", flags->folders,
                   "Folders to look through beside the hub cache; remembered for later scans");
  verb->add_flag("--json", flags->as_json, "JSON on standard output");
  add_hub_flags(*verb, flags->hub);
  verb->footer("Example:\n  kvasir scan ~/models /data/gguf");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
