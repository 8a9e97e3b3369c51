#include "hub/detail/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>

namespace kvasir::hub {
namespace {

std::string_view base_of(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return out;
}

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
    return fnmatch(whole.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

bool is_gguf(const RemoteFile& file) { return file.name.ends_with(".gguf"); }
bool is_safetensors(const RemoteFile& file) {
  return file.name.ends_with(".safetensors") && file.name.find('/') == std::string::npos;
}

// Weights of other frameworks, and pictures: of no use to this engine.
bool is_foreign(const RemoteFile& file) {
  constexpr std::array<std::string_view, 24> kEndings{
      ".bin", ".pth", ".pt",     ".ckpt", ".h5",   ".msgpack", ".onnx", ".onnx_data",
      ".ot",  ".npz", ".tflite", ".pb",   ".pkl",  ".mlmodel", ".tar",  ".zip",
      ".tgz", ".gz",  ".png",    ".jpg",  ".jpeg", ".gif",     ".mp4",  ".pdf"};
  const std::string name = lower(file.name);
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// The same weights once more, in their makers' own layout.
bool is_second_copy(const RemoteFile& file) {
  for (const std::string_view folder : {"original/", "metal/", "onnx/", "openvino/", "coreml/"}) {
    if (file.name.starts_with(folder)) return true;
  }
  return base_of(file.name).starts_with("consolidated");
}

std::vector<RemoteFile> without(const std::vector<RemoteFile>& files,
                                bool (*is_unwanted)(const RemoteFile&)) {
  std::vector<RemoteFile> out;
  std::copy_if(files.begin(), files.end(), std::back_inserter(out),
               [&](const RemoteFile& file) { return !is_unwanted(file); });
  return out;
}

// Several models in one repository: the user has to say which.
Error which_gguf(const std::map<std::string, std::uint64_t>& models, const std::string& repo) {
  std::string list;
  for (const auto& [name, size_bytes] : models) {
    list += "\n  " + name + "  " + std::to_string((size_bytes + 500'000) / 1'000'000) + " MB";
  }
  const std::string& first = models.begin()->first;
  return invalid(repo +
                 " holds several GGUF models; choose with --include, for example --include '" +
                 first + "*':" + list);
}

bool is_projector(const RemoteFile& file) { return is_vision_projector(file.name); }

Result<std::vector<RemoteFile>> gguf_default(const std::vector<RemoteFile>& files,
                                             const std::string& repo) {
  std::map<std::string, std::uint64_t> models;
  for (const RemoteFile& file : files) {
    if (is_gguf(file) && !is_projector(file)) models[gguf_model_name(file.name)] += file.size_bytes;
  }
  if (models.size() > 1) return which_gguf(models, repo);
  return without(without(without(files, is_foreign), is_second_copy), is_projector);
}

bool is_weight_of_other_framework(const RemoteFile& file) {
  constexpr std::array<std::string_view, 8> kEndings{".bin", ".pth",  ".pt",      ".ckpt",
                                                     ".h5",  ".onnx", ".msgpack", ".npz"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return file.name.ends_with(ending); });
}

Result<std::vector<RemoteFile>> default_files(const std::vector<RemoteFile>& files,
                                              const std::string& repo) {
  const bool has_safetensors = std::any_of(files.begin(), files.end(), is_safetensors);
  const bool has_gguf = std::any_of(files.begin(), files.end(), is_gguf);
  if (has_safetensors) return without(without(without(files, is_foreign), is_second_copy), is_gguf);
  if (has_gguf) return gguf_default(files, repo);
  const auto foreign = std::find_if(files.begin(), files.end(), is_weight_of_other_framework);
  if (foreign == files.end()) return files;
  return unsupported(repo + " has no safetensors and no GGUF, only weights kvasir cannot load (" +
                     foreign->name + "); --include '*' fetches them all the same");
}

}  // namespace

std::string gguf_model_name(std::string_view file) {
  constexpr std::string_view kGguf = ".gguf", kPart = "-00001-of-00001";
  if (file.ends_with(kGguf)) file.remove_suffix(kGguf.size());
  if (file.size() <= kPart.size()) return std::string(file);
  const std::string tail(file.substr(file.size() - kPart.size()));
  if (fnmatch("-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]", tail.c_str(), 0) == 0)
    file.remove_suffix(kPart.size());
  return std::string(file);
}

bool is_vision_projector(std::string_view file) {
  const std::string base = lower(base_of(file));
  return base.ends_with(".gguf") && base.find("mmproj") != std::string::npos;
}

Result<std::vector<RemoteFile>> select_files(const Listing& listing,
                                             const Patterns& patterns,
                                             const std::string& repo) {
  std::vector<RemoteFile> out;
  for (const RemoteFile& file : listing.files) {
    const bool is_in = patterns.include.empty() || matches(patterns.include, file.name);
    if (is_in && !matches(patterns.exclude, file.name)) out.push_back(file);
  }
  if (out.empty()) {
    std::string names;
    for (std::size_t i = 0; i < listing.files.size() && i < 50; ++i)
      names += "\n  " + listing.files[i].name;
    return not_found(repo + ": no file matches; it has:" + names);
  }
  if (!patterns.include.empty()) return out;
  return default_files(out, repo);
}

}  // namespace kvasir::hub
