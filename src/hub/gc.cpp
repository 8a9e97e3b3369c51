#include "hub/gc.h"

#include <algorithm>

#include "hub/detail/file_lock.h"
#include "hub/detail/places.h"
#include "hub/detail/repo_contents.h"
#include "hub/repo.h"
#include "hub/use_mark.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kIncomplete = ".incomplete";

// The revision part of a removal is a ref, a commit or its beginning; none means all of them.
struct Removal {
  std::string repo, revision;

  bool covers(const RepoContents& repo_now, const Snapshot& snapshot) const {
    constexpr std::size_t kShortestCommit = 7;
    if (repo_now.repo != repo) return false;
    if (revision.empty()) return true;
    if (revision.size() >= kShortestCommit && snapshot.commit.starts_with(revision)) return true;
    return std::any_of(repo_now.refs.begin(), repo_now.refs.end(), [&](const Ref& ref) {
      return ref.name == revision && ref.commit == snapshot.commit;
    });
  }
};

Result<std::vector<Removal>> parse_removals(const GcRequest& request) {
  std::vector<Removal> out;
  for (const std::string& text : request.remove) {
    KVASIR_TRY(const RepoRef ref, parse_repo(text));
    const bool has_revision = text.find('@') != std::string::npos;
    out.push_back({ref.repo, has_revision ? ref.revision : ""});
  }
  return out;
}

bool is_stale(const fs::path& path,
              const fs::path& cache,
              const std::string& repo,
              std::chrono::seconds stale_after) {
  std::error_code ec;
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(path, ec);
  if (ec || age < stale_after) return false;
  std::string blob = path.filename().string();
  blob.resize(blob.size() - kIncomplete.size());
  return !is_lock_alive(locks_path(cache, repo) / (blob + ".kvasir"));
}

// The garbage of one repository as it is now.
class RepoGarbage {
 public:
  RepoGarbage(const RepoContents& repo,
              const GcRequest& request,
              const std::vector<Removal>& removals)
      : repo_(repo), request_(request), removals_(removals) {}

  std::vector<GcItem> items(const fs::path& cache) {
    for (const Snapshot& snapshot : repo_.snapshots) {
      linked_.insert(snapshot.blobs.begin(), snapshot.blobs.end());
      if (!is_garbage(snapshot)) kept_.insert(snapshot.blobs.begin(), snapshot.blobs.end());
    }
    for (const Snapshot& snapshot : repo_.snapshots) {
      if (is_garbage(snapshot)) add_revision(snapshot);
    }
    for (const auto& [name, size_bytes] : repo_.blobs) {
      if (!linked_.contains(name)) add(GcKind::blob, repo_.path / "blobs" / name, size_bytes);
    }
    for (const fs::path& path : repo_.incomplete) {
      std::error_code ec;
      if (is_stale(path, cache, repo_.repo, request_.stale_after))
        add(GcKind::incomplete, path, fs::file_size(path, ec));
    }
    return std::move(items_);
  }

 private:
  bool was_asked_for(const Snapshot& snapshot) const {
    return std::any_of(removals_.begin(), removals_.end(),
                       [&](const Removal& removal) { return removal.covers(repo_, snapshot); });
  }
  bool is_garbage(const Snapshot& snapshot) const {
    return was_asked_for(snapshot) || !repo_.has_ref(snapshot.commit);
  }
  void add_revision(const Snapshot& snapshot) {
    std::uint64_t size_bytes = snapshot.own_bytes;
    for (const std::string& name : snapshot.blobs) {
      const auto blob = repo_.blobs.find(name);
      if (blob == repo_.blobs.end() || !kept_.insert(name).second) continue;  // counted once
      size_bytes += blob->second;
    }
    add(GcKind::revision, snapshot.path, size_bytes);
    items_.back().was_asked_for = was_asked_for(snapshot);
  }
  void add(GcKind kind, const fs::path& path, std::uint64_t size_bytes) {
    items_.push_back({kind, repo_.repo, path, size_bytes});
  }

  const RepoContents& repo_;
  const GcRequest& request_;
  const std::vector<Removal>& removals_;
  std::set<std::string> linked_, kept_;
  std::vector<GcItem> items_;
};

// Deletes in one repository, whose lock is held. Links go before blobs: an interruption leaves
// blobs for the next time, never a link to nothing.
class Collector {
 public:
  Collector(const fs::path& cache, GcReport& report) : cache_(cache), report_(report) {}

  // `now` is the garbage under the lock; only what the plan showed is deleted of it.
  Status run(const std::string& repo,
             const std::vector<GcItem>& now,
             const std::set<fs::path>& shown) {
    const RepoContents before = read_repo(cache_, repo);
    std::set<std::string> blobs;
    for (const GcItem& item : now) {
      if (!shown.contains(item.path)) continue;
      if (item.kind == GcKind::revision) {
        KVASIR_TRY_DO(remove_revision(before, item, blobs));
      } else if (item.kind == GcKind::blob) {
        blobs.insert(item.path.filename().string());
      } else {
        KVASIR_TRY_DO(remove_file(item.path));
      }
    }
    const RepoContents after = read_repo(cache_, repo);
    for (const Snapshot& snapshot : after.snapshots) {
      for (const std::string& name : snapshot.blobs) blobs.erase(name);
    }
    for (const std::string& name : blobs) KVASIR_TRY_DO(remove_file(before.path / "blobs" / name));
    return remove_empty_repo(repo);
  }

 private:
  Status remove_revision(const RepoContents& repo,
                         const GcItem& item,
                         std::set<std::string>& blobs) {
    const std::string commit = item.path.filename().string();
    for (const Snapshot& snapshot : repo.snapshots) {
      if (snapshot.commit != commit) continue;
      blobs.insert(snapshot.blobs.begin(), snapshot.blobs.end());
      report_.freed_bytes += snapshot.own_bytes;
    }
    for (const Ref& ref : repo.refs) {
      std::error_code gone;
      if (ref.commit == commit) fs::remove(repo.path / "refs" / ref.name, gone);
    }
    std::error_code ec;
    fs::remove_all(repo.path / ".no_exist" / commit, ec);  // huggingface_hub's notes about it
    const auto n = fs::remove_all(item.path, ec);
    if (ec) return io_error(item.path.string() + ": " + ec.message());
    report_.n_deleted += n;
    return {};
  }

  Status remove_file(const fs::path& path) {
    std::error_code ec;
    const auto size_bytes = fs::file_size(path, ec);
    const bool has_size = !ec;
    const bool is_removed = fs::remove(path, ec);
    if (ec) return io_error(path.string() + ": " + ec.message());
    if (is_removed) ++report_.n_deleted;
    if (is_removed && has_size) report_.freed_bytes += size_bytes;
    return {};
  }

  Status remove_empty_repo(const std::string& repo) {
    const RepoContents now = read_repo(cache_, repo);
    if (!now.snapshots.empty() || !now.blobs.empty() || !now.incomplete.empty()) return {};
    std::error_code ec;
    fs::remove_all(now.path, ec);
    if (ec) return io_error(now.path.string() + ": " + ec.message());
    return {};
  }

  const fs::path& cache_;
  GcReport& report_;
};

}  // namespace

std::string_view name_of(GcKind kind) noexcept {
  switch (kind) {
    case GcKind::revision:
      return "revision";
    case GcKind::blob:
      return "blob";
    case GcKind::incomplete:
      return "incomplete";
  }
  return "blob";
}

Result<GcPlan> plan_gc(const HubOptions& options, const GcRequest& request) {
  KVASIR_TRY(const std::vector<Removal> removals, parse_removals(request));
  const std::vector<std::string> repos = repos_in(options.cache);
  for (const Removal& removal : removals) {
    if (std::find(repos.begin(), repos.end(), removal.repo) == repos.end())
      return not_found(removal.repo + ": not in " + options.cache.string());
  }
  GcPlan plan;
  for (const std::string& repo : repos) {
    const RepoContents contents = read_repo(options.cache, repo);
    auto items = RepoGarbage(contents, request, removals).items(options.cache);
    if (items.empty()) continue;
    const auto mark = UseMark::take_alone(options.cache, repo);
    if (!mark && mark.error().code == Errc::capacity) {
      plan.in_use.push_back(repo);
      continue;
    }
    for (GcItem& item : items) {
      plan.size_bytes += item.size_bytes;
      plan.items.push_back(std::move(item));
    }
  }
  return plan;
}

Result<GcReport> collect(const HubOptions& options, const GcRequest& request, const GcPlan& plan) {
  KVASIR_TRY(const std::vector<Removal> removals, parse_removals(request));
  std::set<std::string> repos;
  std::set<fs::path> shown;
  for (const GcItem& item : plan.items) {
    repos.insert(item.repo);
    shown.insert(item.path);
  }
  GcReport report;
  report.in_use = plan.in_use;
  for (const std::string& repo : repos) {
    const auto mark = UseMark::take_alone(options.cache, repo);
    if (!mark && mark.error().code != Errc::capacity) return mark.error();
    if (!mark) {
      report.in_use.push_back(repo);
      continue;
    }
    const RepoContents contents = read_repo(options.cache, repo);
    const auto now = RepoGarbage(contents, request, removals).items(options.cache);
    KVASIR_TRY_DO(Collector(options.cache, report).run(repo, now, shown));
  }
  return report;
}

json::Value to_json(const GcPlan& plan) {
  json::Array items, in_use;
  for (const GcItem& item : plan.items) {
    items.push_back(json::Object{{"kind", name_of(item.kind)},
                                 {"repo", item.repo},
                                 {"path", item.path.string()},
                                 {"size_bytes", item.size_bytes}});
  }
  for (const std::string& repo : plan.in_use) in_use.emplace_back(repo);
  return json::Object{
      {"items", std::move(items)}, {"in_use", std::move(in_use)}, {"size_bytes", plan.size_bytes}};
}

}  // namespace kvasir::hub
