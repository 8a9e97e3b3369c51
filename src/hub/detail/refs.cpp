#include "hub/detail/refs.h"

#include <algorithm>

#include "base/file.h"
#include "hub/repo.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxRefBytes = 256;
constexpr int kMaxDepth = 8;

}  // namespace

std::vector<Ref> all_refs(const fs::path& repo_path) {
  std::vector<Ref> out;
  std::error_code ec;
  const fs::path root = repo_path / "refs";
  fs::recursive_directory_iterator it(root, ec), end;
  for (; !ec && it != end; it.increment(ec)) {
    if (it.depth() >= kMaxDepth) it.disable_recursion_pending();
    if (it->is_directory(ec)) continue;
    auto text = read_file(it->path(), kMaxRefBytes);
    if (!text) continue;
    while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
    const std::string name = it->path().lexically_relative(root).string();
    if (is_commit(*text) && is_revision(name)) out.push_back({name, *text});
  }
  std::sort(out.begin(), out.end(), [](const Ref& a, const Ref& b) { return a.name < b.name; });
  return out;
}

std::vector<std::string> refs_of(const fs::path& repo_path, const std::string& commit) {
  std::vector<std::string> out;
  for (const Ref& ref : all_refs(repo_path)) {
    if (ref.commit == commit) out.push_back(ref.name);
  }
  return out;
}

}  // namespace kvasir::hub
