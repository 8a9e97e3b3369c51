#include "hub/detail/repo_contents.h"

#include <algorithm>

#include "hub/repo.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxDepth = 64;

Snapshot read_snapshot(const fs::path& path, const fs::path& blobs) {
  Snapshot out;
  out.commit = path.filename().string();
  out.path = path;
  std::error_code ec;
  fs::recursive_directory_iterator it(path, ec), end;
  for (; !ec && it != end; it.increment(ec)) {
    if (it.depth() >= kMaxDepth) it.disable_recursion_pending();
    std::error_code unreadable;
    if (it->is_symlink(unreadable)) {
      const fs::path to = fs::read_symlink(it->path(), unreadable);
      const fs::path target = (it->path().parent_path() / to).lexically_normal();
      if (target.parent_path() == blobs) out.blobs.insert(target.filename().string());
      ++out.n_files;
    } else if (it->is_regular_file(unreadable)) {
      out.own_bytes += it->file_size(unreadable);
      ++out.n_files;
    }
  }
  return out;
}

}  // namespace

bool RepoContents::has_ref(const std::string& commit) const {
  return std::any_of(refs.begin(), refs.end(), [&](const Ref& r) { return r.commit == commit; });
}

RepoContents read_repo(const fs::path& cache, const std::string& repo) {
  RepoContents out;
  out.repo = repo;
  out.path = repo_path(cache, repo).lexically_normal();
  out.refs = all_refs(out.path);
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(out.path / "snapshots", ec)) {
    std::error_code unreadable;
    const bool is_folder = entry.symlink_status(unreadable).type() == fs::file_type::directory;
    if (is_folder && is_commit(entry.path().filename().string()))
      out.snapshots.push_back(read_snapshot(entry.path(), out.path / "blobs"));
  }
  std::sort(out.snapshots.begin(), out.snapshots.end(),
            [](const Snapshot& a, const Snapshot& b) { return a.commit < b.commit; });
  for (const auto& entry : fs::directory_iterator(out.path / "blobs", ec)) {
    std::error_code unreadable;
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(unreadable)) continue;
    if (name.ends_with(".incomplete")) {
      out.incomplete.push_back(entry.path());
    } else {
      out.blobs[name] = entry.file_size(unreadable);
    }
  }
  std::sort(out.incomplete.begin(), out.incomplete.end());
  return out;
}

std::vector<std::string> repos_in(const fs::path& cache) {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(cache, ec)) {
    std::error_code unreadable;
    if (entry.symlink_status(unreadable).type() != fs::file_type::directory) continue;
    if (auto repo = repo_of(entry.path().filename().string())) out.push_back(*std::move(repo));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kvasir::hub
