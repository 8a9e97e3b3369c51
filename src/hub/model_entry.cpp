#include "hub/model_entry.h"

#include <algorithm>

#include "base/file.h"
#include "formats/inspect.h"
#include "hub/detail/refs.h"
#include "hub/detail/selection.h"
#include "hub/repo.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxConfigBytes = 16u << 20;
constexpr std::size_t kMostNamed = 10;

std::uint64_t bytes_of_experts(const std::vector<formats::TensorInfo>& tensors) {
  std::uint64_t total = 0;
  for (const formats::TensorInfo& tensor : tensors) {
    const bool is_expert = tensor.name.find(".experts.") != std::string::npos ||
                           tensor.name.find(".switch_mlp.") != std::string::npos;
    if (is_expert) total += tensor.size_bytes;
  }
  return total;
}

// The model's own configuration says so; a GGUF model has its projector in a file beside it.
bool sees_pictures(const fs::path& path, bool is_gguf) {
  std::error_code ec;
  if (is_gguf) {
    for (const auto& file : fs::directory_iterator(path.parent_path(), ec)) {
      if (is_vision_projector(file.path().filename().string())) return true;
    }
    return false;
  }
  const auto text = read_file(path / "config.json", kMaxConfigBytes);
  if (!text) return false;
  const auto config = json::parse(*text, {kMaxConfigBytes, 64});
  if (!config) return false;
  for (const char* member : {"vision_config", "visual", "mm_vision_tower"}) {
    const json::Value* value = config->find(member);
    if (value && (value->is_object() || value->is_string())) return true;
  }
  return false;
}

std::int64_t unix_time(const fs::path& path) {
  std::error_code ec;
  const auto time = fs::last_write_time(path, ec);
  if (ec) return 0;
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return out;
}

using Entries = std::vector<const ModelEntry*>;

template <class Wanted>
Entries where(std::span<const ModelEntry> entries, const Wanted& wanted) {
  Entries out;
  for (const ModelEntry& entry : entries) {
    if (wanted(entry)) out.push_back(&entry);
  }
  return out;
}

// Main revisions when there are any; otherwise all of them.
Entries preferred(const Entries& found) {
  Entries out;
  std::copy_if(found.begin(), found.end(), std::back_inserter(out),
               [](const ModelEntry* entry) { return is_main(*entry); });
  return out.empty() ? found : out;
}

// A name that tells apart two revisions of one repository.
std::string full_name(const ModelEntry& entry) {
  return is_main(entry) ? display_name(entry)
                        : display_name(entry) + "@" + entry.revision.substr(0, 12);
}

Error several(std::string_view query, const Entries& found) {
  std::string text = "'" + std::string(query) + "' matches several models: ";
  for (std::size_t i = 0; i < found.size() && i < kMostNamed; ++i)
    text += (i ? ", " : "") + full_name(*found[i]);
  if (found.size() > kMostNamed)
    text += " and " + std::to_string(found.size() - kMostNamed) + " more";
  return invalid(std::move(text));
}

bool is_at_revision(const ModelEntry& entry, std::string_view revision) {
  constexpr std::size_t kShortestCommit = 7;
  return std::find(entry.refs.begin(), entry.refs.end(), revision) != entry.refs.end() ||
         entry.revision == revision ||
         (revision.size() >= kShortestCommit && entry.revision.starts_with(revision));
}

// A file, or a folder that holds a model: any other folder may share its name with a model.
bool is_model_path(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec) || fs::exists(path / "config.json", ec);
}

}  // namespace

fs::path model_path(const fs::path& path) {
  std::error_code ec;
  const fs::path whole = fs::absolute(path, ec).lexically_normal();
  if (fs::is_directory(whole, ec)) return fs::weakly_canonical(whole, ec);
  return fs::weakly_canonical(whole.parent_path(), ec) / whole.filename();
}

Result<ModelEntry> describe_model(const fs::path& path) {
  KVASIR_TRY(const formats::ModelFiles files, formats::ModelFiles::open(path));
  const formats::ModelDescription facts = formats::describe(files);
  ModelEntry out;
  out.path = model_path(path);
  if (const auto place = place_of(out.path)) {
    out.repo = place->repo;
    out.revision = place->commit;
    out.refs = refs_of(place->repo_path, place->commit);
  }
  out.container = facts.container;
  out.architecture = facts.architecture;
  out.model_type = facts.model_type;
  out.n_parameters = facts.n_parameters;
  out.size_bytes = facts.size_bytes;
  out.context_length = facts.context_length;
  out.quantization = facts.quantization;
  const bool is_gguf = files.container() == formats::Container::gguf;
  out.has_vision = sees_pictures(out.path, is_gguf);
  out.experts_bytes = bytes_of_experts(facts.tensors);
  out.modified_s = unix_time(is_gguf ? out.path : out.path / "config.json");
  return out;
}

std::string display_name(const ModelEntry& entry) {
  if (entry.repo.empty()) return entry.path.string();
  const auto place = place_of(entry.path);
  if (!place) return entry.repo;
  const fs::path inner =
      entry.path.lexically_relative(place->repo_path / "snapshots" / place->commit);
  return inner == "." ? entry.repo : entry.repo + "/" + inner.string();
}

bool is_main(const ModelEntry& entry) noexcept {
  return entry.repo.empty() ||
         std::find(entry.refs.begin(), entry.refs.end(), "main") != entry.refs.end();
}

json::Value to_json(const ModelEntry& entry) {
  const auto text_or_null = [](const std::string& s) {
    return s.empty() ? json::Value() : json::Value(s);
  };
  const auto speed = [](std::optional<double> s) { return s ? json::Value(*s) : json::Value(); };
  json::Array refs;
  for (const std::string& ref : entry.refs) refs.emplace_back(ref);
  return json::Object{{"name", display_name(entry)},
                      {"path", entry.path.string()},
                      {"repo", text_or_null(entry.repo)},
                      {"revision", text_or_null(entry.revision)},
                      {"refs", std::move(refs)},
                      {"container", entry.container},
                      {"architecture", entry.architecture},
                      {"model_type", entry.model_type},
                      {"parameters", entry.n_parameters},
                      {"size_bytes", entry.size_bytes},
                      {"context_length", entry.context_length},
                      {"quantization", entry.quantization},
                      {"vision", entry.has_vision},
                      {"experts_bytes", entry.experts_bytes},
                      {"prefill_tokens_per_second", speed(entry.prefill_speed)},
                      {"decode_tokens_per_second", speed(entry.decode_speed)},
                      {"modified", entry.modified_s}};
}

Result<ModelEntry> find_model(std::span<const ModelEntry> entries, std::string_view query) {
  const auto none = [&] {
    return not_found("no local model matches '" + std::string(query) + "'; try kvasir get");
  };
  if (query.empty() || query.find('\0') != std::string_view::npos) return none();
  if (is_model_path(query)) {
    const fs::path path = model_path(query);
    const Entries same = where(entries, [&](const ModelEntry& e) { return e.path == path; });
    return same.empty() ? describe_model(path) : *same.front();
  }
  std::string_view name = query, revision;
  if (const std::size_t at = query.find('@'); at != std::string_view::npos) {
    name = query.substr(0, at);
    revision = query.substr(at + 1);
  }
  if (name.empty()) return none();
  const auto is_wanted = [&](const ModelEntry& e) {
    return revision.empty() || is_at_revision(e, revision);
  };
  const std::string wanted = lower(name);
  Entries found = where(entries, [&](const ModelEntry& e) {
    return is_wanted(e) && lower(display_name(e)) == wanted;
  });
  if (found.empty())
    found = where(entries, [&](const ModelEntry& e) {
      return is_wanted(e) && !e.repo.empty() && lower(e.repo) == wanted;
    });
  if (found.empty())
    found = where(entries, [&](const ModelEntry& e) {
      return is_wanted(e) && lower(display_name(e)).find(wanted) != std::string::npos;
    });
  if (revision.empty()) found = preferred(found);
  if (found.empty()) return none();
  if (found.size() > 1) return several(query, found);
  return *found.front();
}

}  // namespace kvasir::hub
