#include "hub/get.h"

#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/hub_support.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"
#include "base/log.h"
#include "hub/registry.h"

namespace kvasir::app {
namespace {

struct Flags {
  HubFlags hub;
  std::string repo, revision;
  std::vector<std::string> files, include, exclude;
  bool is_dry_run = false, is_quiet = false, as_json = false;
};

json::Value to_json(const hub::GetReport& report) {
  json::Array files;
  for (const hub::GetFile& file : report.files) {
    files.push_back(json::Object{
        {"name", file.name}, {"size_bytes", file.size_bytes}, {"was_present", file.was_present}});
  }
  return json::Object{{"repo", report.repo},
                      {"revision", report.revision},
                      {"commit", report.commit},
                      {"path", report.model.string()},
                      {"snapshot", report.snapshot.string()},
                      {"total_bytes", report.total_bytes},
                      {"fetched_bytes", report.fetched_bytes},
                      {"files", std::move(files)}};
}

void print_plan(const hub::GetReport& report) {
  std::vector<std::vector<std::string>> rows;
  std::uint64_t missing_bytes = 0;
  for (const hub::GetFile& file : report.files) {
    rows.push_back(
        {file.name, size_text(file.size_bytes), file.was_present ? "present" : "to fetch"});
    if (!file.was_present) missing_bytes += file.size_bytes;
  }
  std::fputs(table_text(rows).c_str(), stdout);
  std::printf("%s of %s to fetch\n", size_text(missing_bytes).c_str(),
              size_text(report.total_bytes).c_str());
}

// So that the model is known by name at once; the registry is derived, so failing is no failure.
void note_in_registry(const hub::HubOptions& options) {
  auto registry = hub::Registry::open(options.registry);
  if (!registry) return log::warning(registry.error().what);
  if (const auto report = registry->scan(options); !report) log::warning(report.error().what);
}

int run(const Flags& flags) {
  const auto options = hub_options(flags.hub);
  if (!options) return report(options.error());
  if (is_offline()) return report(io_error("HF_HUB_OFFLINE is set: nothing is fetched"));
  hub::GetRequest request;
  request.repo = flags.revision.empty() ? flags.repo : flags.repo + "@" + flags.revision;
  request.include = flags.include;
  request.include.insert(request.include.end(), flags.files.begin(), flags.files.end());
  request.exclude = flags.exclude;
  request.is_dry_run = flags.is_dry_run;
  if (!flags.is_quiet) request.progress = make_progress_bar();
  request.cancel = &catch_interrupts();
  const auto got = hub::get(*options, request);
  if (!got) {
    if (got.error().code != Errc::cancelled) return report(got.error());
    std::fputs("interrupted; the same command continues\n", stderr);
    return kExitInterrupted;
  }
  if (!flags.is_dry_run) note_in_registry(*options);
  if (flags.as_json) {
    std::puts(json::write(to_json(*got)).c_str());
  } else if (flags.is_dry_run) {
    print_plan(*got);
  } else {
    std::puts(got->model.string().c_str());
  }
  return 0;
}

}  // namespace

void add_get(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("get", "Fetch a model from the hub into its cache");
  verb->add_option("repo", flags->repo, "ORG/NAME[@REVISION]")->required();
  verb->add_option("files", flags->files, "Only these files");
  verb->add_option("--revision", flags->revision, "Branch, tag or commit (default main)");
  verb->add_option("--include", flags->include, "Only files that match; may be given again")
      ->allow_extra_args(false);
  verb->add_option("--exclude", flags->exclude, "No files that match; may be given again")
      ->allow_extra_args(false);
  verb->add_flag("--dry-run", flags->is_dry_run, "Say what would be fetched");
  verb->add_flag("-q,--quiet", flags->is_quiet, "No progress");
  verb->add_flag("--json", flags->as_json, "JSON on standard output");
  add_hub_flags(*verb, flags->hub);
  verb->footer(
      "Prints the path to open. Gated repositories need HF_TOKEN.\n"
      "Examples:\n  kvasir get Qwen/Qwen3-0.6B\n"
      "  kvasir get unsloth/Qwen3-0.6B-GGUF --include '*Q4_K_M*'");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
