// Where things lie inside a repository's folder of the hub cache, and the writing of its links and
// refs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::hub {

// .locks/models--org--name: beside the repositories, so that removing one leaves its locks.
std::filesystem::path locks_path(const std::filesystem::path& cache, std::string_view repo);

// Makes snapshots/<commit>/<name> a relative link to blobs/<blob>. Replaces another file there.
Status link_file(const std::filesystem::path& repo_path,
                 const std::string& commit,
                 const std::string& name,
                 const std::string& blob);

// refs/<revision> = commit; replaced as a whole, so that readers see the old or the new one.
Status write_ref(const std::filesystem::path& repo_path,
                 const std::string& revision,
                 const std::string& commit);

}  // namespace kvasir::hub
