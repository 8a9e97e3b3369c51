#include "hub/repo.h"

#include <algorithm>

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxRepoName = 96, kMaxRevision = 255;
constexpr std::string_view kFolderPrefix = "models--";

bool is_alnum(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// One of the two names around the slash: huggingface_hub's rule.
bool is_name_part(std::string_view part) noexcept {
  const auto is_fine = [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; };
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && std::all_of(part.begin(), part.end(), is_fine) &&
         !is_edge(part.front()) && !is_edge(part.back()) &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

std::string_view without_site(std::string_view text) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  }
  for (const std::string_view site : {"huggingface.co/", "hf.co/"}) {
    if (text.starts_with(site)) text.remove_prefix(site.size());
  }
  return text;
}

}  // namespace

bool is_repo_name(std::string_view text) noexcept {
  if (text.size() > kMaxRepoName) return false;
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_name_part(text);
  return is_name_part(text.substr(0, slash)) && is_name_part(text.substr(slash + 1));
}

bool is_revision(std::string_view text) noexcept {
  const auto is_fine = [](char c) {
    return is_alnum(c) || c == '-' || c == '_' || c == '.' || c == '/' || c == '+';
  };
  return !text.empty() && text.size() <= kMaxRevision &&
         std::all_of(text.begin(), text.end(), is_fine) && text.front() != '/' &&
         text.front() != '.' && text.back() != '/' && text.find("//") == std::string_view::npos &&
         text.find("/.") == std::string_view::npos && text.find("..") == std::string_view::npos;
}

bool is_commit(std::string_view text) noexcept {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<RepoRef> parse_repo(std::string_view text) {
  RepoRef out;
  std::string_view name = without_site(text);
  if (const std::size_t at = name.find('@'); at != std::string_view::npos) {
    out.revision = name.substr(at + 1);
    name = name.substr(0, at);
  }
  out.repo = name;
  if (!is_repo_name(out.repo))
    return invalid("'" + std::string(text) + "' is not a repository; expected ORG/NAME[@REVISION]");
  if (!is_revision(out.revision))
    return invalid("'" + std::string(text) + "': '" + out.revision + "' is not a revision");
  return out;
}

std::string folder_of(std::string_view repo) {
  std::string out(kFolderPrefix);
  const std::size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return out.append(repo);
  return out.append(repo.substr(0, slash)).append("--").append(repo.substr(slash + 1));
}

std::optional<std::string> repo_of(std::string_view folder) {
  if (!folder.starts_with(kFolderPrefix)) return std::nullopt;
  std::string repo(folder.substr(kFolderPrefix.size()));
  if (const std::size_t at = repo.find("--"); at != std::string::npos) repo.replace(at, 2, "/");
  if (!is_repo_name(repo)) return std::nullopt;
  return repo;
}

fs::path repo_path(const fs::path& cache, std::string_view repo) { return cache / folder_of(repo); }

std::optional<SnapshotPlace> place_of(const fs::path& path) {
  std::error_code ec;
  fs::path at = fs::absolute(path, ec).lexically_normal();
  while (at.has_relative_path()) {
    const fs::path snapshots = at.parent_path();
    const fs::path repo_folder = snapshots.parent_path();
    if (snapshots.filename() == "snapshots" && is_commit(at.filename().string())) {
      if (auto repo = repo_of(repo_folder.filename().string()))
        return SnapshotPlace{repo_folder, *std::move(repo), at.filename().string()};
    }
    at = snapshots;
  }
  return std::nullopt;
}

}  // namespace kvasir::hub
