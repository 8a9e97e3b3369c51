// ModelEntry: what is known of one model on disk without opening it again, and how a user's query
// finds one (SRV-81). Plain values; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace kvasir::hub {

struct ModelEntry {
  std::filesystem::path path;     // what to open: a folder or a .gguf file; absolute
  std::string repo, revision;     // "org/name" and commit; "" outside of a hub cache
  std::vector<std::string> refs;  // branches and tags at this revision
  std::string container;          // "gguf" or "hub folder"
  std::string architecture;       // "LlamaForCausalLM"
  std::string model_type;         // "llama"
  std::uint64_t n_parameters = 0;
  std::uint64_t size_bytes = 0;  // of all tensors
  std::uint64_t context_length = 0;
  std::string quantization;  // main type of the quantized tensors; "none" for dense models
  bool has_vision = false;
  std::uint64_t experts_bytes = 0;  // routed experts, of size_bytes
  // Tokens per second when last measured.
  std::optional<double> prefill_speed = {}, decode_speed = {};
  std::int64_t modified_s = 0;  // Unix time of its newest file
};

// The one spelling of a model's path that entries use: absolute, folders resolved, a file's own
// link kept (in a snapshot its name is the model's, its target a digest).
std::filesystem::path model_path(const std::filesystem::path& path);

// Reads headers only. Errors name the file and what was wrong.
Result<ModelEntry> describe_model(const std::filesystem::path& path);

// "org/name" for a folder of a hub cache, "org/name/file.gguf" for a file of one, else the path.
std::string display_name(const ModelEntry& entry);
// The revision users mean when they name none: refs/main, and everything outside of a hub cache.
bool is_main(const ModelEntry& entry) noexcept;
json::Value to_json(const ModelEntry& entry);

// A path, a repository ("org/name[@revision]"), a display name or a unique part of one (letter case
// does not matter). Main revisions come first. A path need not be among the entries. Errors:
// "'q' matches several models: …", "no local model matches 'q'; try kvasir get".
Result<ModelEntry> find_model(std::span<const ModelEntry> entries, std::string_view query);

}  // namespace kvasir::hub
