// Names of model repositories and where they lie in a hub cache. Everything that becomes part of a
// path or URL is checked here. Pure functions; any thread. Layout (huggingface_hub, "cache system
// reference"): models--org--name/{blobs,refs,snapshots/<commit>}, snapshot files are links to
// blobs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::hub {

struct RepoRef {
  std::string repo;               // "org/name", or "name" for the oldest ones
  std::string revision = "main";  // branch, tag or commit
};

// "org/name[@revision]"; also with "hf.co/", "huggingface.co/" and the like in front.
Result<RepoRef> parse_repo(std::string_view text);
bool is_repo_name(std::string_view text) noexcept;
bool is_revision(std::string_view text) noexcept;
bool is_commit(std::string_view text) noexcept;  // 40 lower-case hex digits

std::string folder_of(std::string_view repo);                 // "models--org--name"
std::optional<std::string> repo_of(std::string_view folder);  // back again
std::filesystem::path repo_path(const std::filesystem::path& cache, std::string_view repo);

// Where a path inside a snapshot belongs; nothing for paths outside of a hub cache.
struct SnapshotPlace {
  std::filesystem::path repo_path;  // …/models--org--name
  std::string repo, commit;
};
std::optional<SnapshotPlace> place_of(const std::filesystem::path& path);

}  // namespace kvasir::hub
