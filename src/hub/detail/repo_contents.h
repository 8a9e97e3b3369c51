// What is in one repository's folder of the hub cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hub/detail/refs.h"

namespace kvasir::hub {

struct Snapshot {
  std::string commit;
  std::filesystem::path path;
  std::set<std::string> blobs;  // names in blobs/ that it links to
  std::uint64_t own_bytes = 0;  // of files that are no links
  std::size_t n_files = 0;
};

struct RepoContents {
  std::string repo;
  std::filesystem::path path;
  std::vector<Snapshot> snapshots;
  std::vector<Ref> refs;
  std::map<std::string, std::uint64_t> blobs;  // name → bytes, without .incomplete files
  std::vector<std::filesystem::path> incomplete;

  bool has_ref(const std::string& commit) const;
};

RepoContents read_repo(const std::filesystem::path& cache, const std::string& repo);
std::vector<std::string> repos_in(const std::filesystem::path& cache);  // sorted

}  // namespace kvasir::hub
