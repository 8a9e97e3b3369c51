#include "hub/gc.h"

#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/hub_support.h"
#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

struct Flags {
  HubFlags hub;
  std::vector<std::string> remove;
  bool is_sure = false, as_json = false;
};

std::string short_name(const hub::GcItem& item) {
  constexpr std::size_t kMost = 12;
  return item.path.filename().string().substr(0, kMost);
}

void print_in_use(const std::vector<std::string>& repos) {
  for (const std::string& repo : repos) std::printf("in use, left alone: %s\n", repo.c_str());
}

void print(const hub::GcPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const hub::GcItem& item : plan.items)
    rows.push_back({std::string(hub::name_of(item.kind)), item.repo, short_name(item),
                    size_text(item.size_bytes)});
  std::fputs(table_text(rows).c_str(), stdout);
  print_in_use(plan.in_use);
}

int collect(const hub::HubOptions& options,
            const hub::GcRequest& request,
            const hub::GcPlan& plan,
            bool as_json) {
  const auto done = hub::collect(options, request, plan);
  if (!done) return report(done.error());
  if (as_json) {
    json::Value out = hub::to_json(plan);
    (*out.as_object())["deleted"] = done->n_deleted;
    (*out.as_object())["freed_bytes"] = done->freed_bytes;
    std::puts(json::write(out).c_str());
    return 0;
  }
  for (std::size_t i = plan.in_use.size(); i < done->in_use.size(); ++i)
    print_in_use({done->in_use[i]});
  std::printf("freed %s\n", size_text(done->freed_bytes).c_str());
  return 0;
}

int run(const Flags& flags) {
  const auto options = hub_options(flags.hub);
  if (!options) return report(options.error());
  hub::GcRequest request;
  request.remove = flags.remove;
  const auto plan = hub::plan_gc(*options, request);
  if (!plan) return report(plan.error());
  if (flags.as_json && !flags.is_sure) {
    std::puts(json::write(hub::to_json(*plan)).c_str());
    return 0;
  }
  if (!flags.as_json) print(*plan);
  if (flags.is_sure) return collect(*options, request, *plan, flags.as_json);
  if (plan->items.empty()) {
    std::puts("nothing to delete");
  } else {
    std::printf("%zu to delete, %s; --yes deletes them\n", plan->items.size(),
                size_text(plan->size_bytes).c_str());
  }
  return 0;
}

}  // namespace

void add_gc(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb = app.add_subcommand("gc", "Delete what the hub cache no longer needs");
  verb->add_option("repos", flags->remove,
                   "Also these: ORG/NAME[@REF or COMMIT], whatever refs they have");
  verb->add_flag("-y,--yes", flags->is_sure, "Delete; without it the plan is printed");
  verb->add_flag("--json", flags->as_json, "JSON on standard output");
  add_hub_flags(*verb, flags->hub);
  verb->footer(
      "Revisions without a ref, blobs without a link, downloads nobody continued.\n"
      "Example:\n  kvasir gc Qwen/Qwen3-0.6B --yes");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
