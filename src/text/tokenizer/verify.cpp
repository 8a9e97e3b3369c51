#include <algorithm>
#include <optional>
#include <vector>

#include "base/file.h"
#include "json/json.h"
#include "text/tokenizer.h"
#include "text/verify_tokenizers.h"

namespace kvasir::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxCasesBytes = 256u << 20;

std::optional<fs::path> cases_file(const fs::path& cases_dir, const std::string& name) {
  std::error_code ec;
  for (const char* ending : {".json", ".json.xz"}) {
    fs::path path = cases_dir / (name + ending);
    if (fs::exists(path, ec)) return path;
  }
  return std::nullopt;
}

bool is_tokenizer_folder(const fs::path& folder) {
  std::error_code ec;
  return fs::exists(folder / "tokenizer.json", ec) ||
         fs::exists(folder / "tokenizer.json.xz", ec) || fs::exists(folder / "tokenizer.model", ec);
}

struct Named {
  std::string name;
  fs::path folder;
};

std::vector<Named> tokenizer_folders(const fs::path& dir) {
  std::vector<Named> out;
  std::error_code ec;
  if (is_tokenizer_folder(dir)) {
    const fs::path whole = fs::absolute(dir, ec).lexically_normal();
    out.push_back({(whole.has_filename() ? whole : whole.parent_path()).filename().string(), dir});
    return out;
  }
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->is_directory(ec) && is_tokenizer_folder(it->path())) {  // is_directory follows links
      out.push_back({it->path().filename().string(), it->path()});
    }
  }
  std::sort(out.begin(), out.end(), [](const Named& a, const Named& b) { return a.name < b.name; });
  return out;
}

std::optional<std::vector<TokenId>> read_ids(const json::Value& spec, std::string_view member) {
  const json::Value* list = spec.find(member);
  if (list == nullptr || !list->is_array()) return std::nullopt;
  std::vector<TokenId> out;
  for (const json::Value& id : *list->as_array()) {
    if (!id.is_int()) return std::nullopt;
    out.push_back(static_cast<TokenId>(*id.as_int()));
  }
  return out;
}

// The first member in which the tokenizer differs from a case; empty: none. A member the case lacks
// is not compared.
std::string first_difference(const Tokenizer& tokenizer, const json::Value& spec) {
  const json::Value* text = spec.find("text");
  if (text == nullptr || !text->is_string()) return "text";
  for (const bool add_special : {false, true}) {
    const std::string member = add_special ? "ids_special" : "ids";
    const auto ids = read_ids(spec, member);
    if (!ids) continue;
    const auto got = tokenizer.encode(*text->as_string(), {.add_special = add_special});
    if (!got || *got != *ids) return member;
    const std::string decoded = add_special ? "decoded_skip" : "decoded";
    const json::Value* want = spec.find(decoded);
    if (want == nullptr || !want->is_string()) continue;
    if (tokenizer.decode(*ids, {.skip_special = add_special}) != *want->as_string()) return decoded;
  }
  return {};
}

}  // namespace

Result<TokenizerSummary> verify_tokenizers(
    const fs::path& tokenizer_dir,
    const fs::path& cases_dir,
    const std::function<void(std::string_view line)>& report) {
  TokenizerSummary sum;
  for (const Named& one : tokenizer_folders(tokenizer_dir)) {
    const auto path = cases_file(cases_dir, one.name);
    if (!path) {
      report(one.name + ": no cases");
      continue;
    }
    KVASIR_TRY(const std::string bytes, read_file(*path, kMaxCasesBytes));
    auto root = json::parse(bytes, {.max_bytes = kMaxCasesBytes});
    if (!root) return invalid(path->string() + ": " + root.error().what);
    const json::Value* cases = root->find("cases");
    if (cases == nullptr || !cases->is_array()) return invalid(path->string() + ": no cases");
    const std::size_t n_cases = cases->as_array()->size();
    ++sum.n_tokenizers;
    sum.n_cases += n_cases;
    const auto tokenizer = Tokenizer::from_folder(one.folder, {.uses_config = false});
    if (!tokenizer) {
      sum.n_differ += n_cases;
      report(one.name + ": " + tokenizer.error().what);
      continue;
    }
    std::size_t n_differ = 0;
    for (std::size_t i = 0; i < n_cases; ++i) {
      const std::string member = first_difference(*tokenizer, (*cases->as_array())[i]);
      if (member.empty()) continue;
      if (n_differ++ == 0)
        report(one.name + ": case " + std::to_string(i) + ": " + member + " differs");
    }
    sum.n_differ += n_differ;
    report(one.name + ": " + std::to_string(n_cases) + " cases, " + std::to_string(n_differ) +
           " differ");
  }
  if (sum.n_tokenizers == 0)
    return not_found("no tokenizer in " + tokenizer_dir.string() + " has cases in " +
                     cases_dir.string());
  return sum;
}

}  // namespace kvasir::text
