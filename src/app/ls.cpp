#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/hub_support.h"
#include "app/cli/verbs.h"
#include "hub/library.h"

namespace kvasir::app {
namespace {

struct Flags {
  HubFlags hub;
  bool with_all_revisions = false, as_json = false;
};

std::string revision_text(const hub::ModelEntry& model) {
  std::string out = model.revision.substr(0, 8);
  for (std::size_t i = 0; i < model.refs.size(); ++i)
    out += (i ? ", " : " (") + model.refs[i].substr(0, 20);
  return model.refs.empty() ? out : out + ")";
}

void print(const std::vector<hub::ModelEntry>& models) {
  std::vector<std::vector<std::string>> rows{
      {"MODEL", "TYPE", "PARAMETERS", "QUANTIZATION", "SIZE", "REVISION"}};
  std::uint64_t total_bytes = 0;
  for (const hub::ModelEntry& model : models) {
    rows.push_back({hub::display_name(model),
                    model.model_type + (model.has_vision ? " (vision)" : ""),
                    count_text(model.n_parameters), model.quantization, size_text(model.size_bytes),
                    revision_text(model)});
    total_bytes += model.size_bytes;
  }
  std::fputs(table_text(rows).c_str(), stdout);
  std::printf("%zu models, %s\n", models.size(), size_text(total_bytes).c_str());
}

int run(const Flags& flags) {
  const auto options = hub_options(flags.hub);
  if (!options) return report(options.error());
  const auto library = hub::Library::open(*options);
  if (!library) return report(library.error());
  if (const auto scanned = (*library)->refresh(); !scanned) return report(scanned.error());
  std::vector<hub::ModelEntry> models = *(*library)->models();
  if (!flags.with_all_revisions)
    std::erase_if(models, [](const hub::ModelEntry& model) { return !hub::is_main(model); });
  if (flags.as_json) {
    std::puts(json::write(hub::to_json(models)).c_str());
  } else if (models.empty()) {
    std::fputs("no models; try kvasir get, or kvasir scan FOLDER\n", stderr);
  } else {
    print(models);
  }
  return 0;
}

}  // namespace

void add_ls(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("ls", "The models on this machine");
  verb->add_flag("--all-revisions", flags->with_all_revisions, "Not only those at refs/main");
  verb->add_flag("--json", flags->as_json, "JSON on standard output");
  add_hub_flags(*verb, flags->hub);
  verb->footer("Example:\n  kvasir ls --all-revisions");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
