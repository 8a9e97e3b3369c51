#include "hub/detail/places.h"

#include <atomic>
#include <fstream>

#include "hub/detail/posix.h"
#include "hub/repo.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;

// A name beside `path` that no other writer uses.
fs::path temporary_for(const fs::path& path) {
  static std::atomic<unsigned> n{0};
  return path.parent_path() /
         (".kvasir-" + std::to_string(::getpid()) + "-" + std::to_string(n++) + ".tmp");
}

Status move_over(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  fs::rename(from, to, ec);
  if (!ec) return {};
  std::error_code ignored;
  fs::remove(from, ignored);
  return io_error(to.string() + ": " + ec.message());
}

}  // namespace

fs::path locks_path(const fs::path& cache, std::string_view repo) {
  return cache / ".locks" / folder_of(repo);
}

Status link_file(const fs::path& repo_path,
                 const std::string& commit,
                 const std::string& name,
                 const std::string& blob) {
  const fs::path link = repo_path / "snapshots" / commit / name;
  fs::path target = "../..";
  for (const char c : name) {
    if (c == '/') target /= "..";
  }
  target = target / "blobs" / blob;
  std::error_code ec;
  if (fs::read_symlink(link, ec) == target) return {};
  KVASIR_TRY_DO(make_folders(link.parent_path()));
  const fs::path made = temporary_for(link);
  fs::create_symlink(target, made, ec);
  if (ec) return io_error(link.string() + ": cannot make a link: " + ec.message());
  return move_over(made, link);
}

Status write_ref(const fs::path& repo_path,
                 const std::string& revision,
                 const std::string& commit) {
  const fs::path ref = repo_path / "refs" / revision;
  KVASIR_TRY_DO(make_folders(ref.parent_path()));
  const fs::path made = temporary_for(ref);
  std::ofstream out(made, std::ios::binary);
  out << commit;
  out.close();
  if (!out) return errno_error(made);
  return move_over(made, ref);
}

}  // namespace kvasir::hub
