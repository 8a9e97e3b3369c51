#include "hub/detail/candidates.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "hub/detail/selection.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxDepth = 12;
constexpr std::size_t kMaxEntries = 1'000'000;

bool has_ending(const fs::path& path, std::string_view ending) {
  return path.filename().string().ends_with(ending);
}

bool is_foreign_weight(const fs::path& path) {
  constexpr std::array<std::string_view, 5> kEndings{".bin", ".pth", ".pt", ".h5", ".onnx"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return has_ending(path, ending); });
}

// FNV-1a: only has to notice change.
class Fingerprint {
 public:
  void add(const fs::path& path) {
    std::error_code ec;
    const auto size = fs::file_size(path, ec);
    const auto time = fs::last_write_time(path, ec).time_since_epoch().count();
    for (const char c : path.filename().string() + " " + std::to_string(size) + " " +
                            std::to_string(time) + "\n") {
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  std::string text() const { return std::to_string(hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

bool is_first_part(const fs::path& gguf) {
  const std::string name = gguf.filename().string();
  const bool is_part =
      gguf_model_name(name).size() + std::string_view(".gguf").size() < name.size();
  return !is_part || name.find("-00001-of-") != std::string::npos;
}

class Search {
 public:
  void folder(const fs::path& path, int depth) {
    std::vector<fs::path> files, folders;
    std::error_code ec;
    fs::directory_iterator it(path, ec), end;
    for (; !ec && it != end && n_entries_ < kMaxEntries; it.increment(ec), ++n_entries_) {
      if (it->path().filename().string().starts_with('.')) continue;
      std::error_code unreadable;
      if (it->symlink_status(unreadable).type() == fs::file_type::directory) {
        folders.push_back(it->path());
      } else {
        files.push_back(it->path());
      }
    }
    std::sort(files.begin(), files.end());
    std::sort(folders.begin(), folders.end());
    take_files(path, files);
    if (depth >= kMaxDepth) return;
    for (const fs::path& inner : folders) {
      if (inner.filename() != "blobs") folder(inner, depth + 1);
    }
  }

  void gguf(const fs::path& file) {
    if (is_vision_projector(file.filename().string()) || !is_first_part(file)) return;
    Fingerprint print;
    print.add(file);
    found_.push_back({file, print.text(), ""});
  }

  std::vector<Candidate> take() && { return std::move(found_); }

 private:
  void take_files(const fs::path& path, const std::vector<fs::path>& files) {
    Fingerprint print;
    bool has_config = false, has_weights = false, has_foreign = false;
    for (const fs::path& file : files) {
      if (has_ending(file, ".gguf")) gguf(file);
      const bool is_weight = has_ending(file, ".safetensors");
      const bool is_config = file.filename() == "config.json";
      has_config = has_config || is_config;
      has_weights = has_weights || is_weight || has_ending(file, ".safetensors.index.json");
      has_foreign = has_foreign || is_foreign_weight(file);
      if (is_weight || has_ending(file, ".json")) print.add(file);
    }
    if (has_config && has_weights) {
      found_.push_back({path, print.text(), ""});
    } else if (has_config && has_foreign) {
      found_.push_back({path, "", "its weights are neither safetensors nor GGUF"});
    }
  }

  std::vector<Candidate> found_;
  std::size_t n_entries_ = 0;
};

}  // namespace

std::vector<Candidate> find_candidates(const fs::path& root) {
  Search search;
  std::error_code ec;
  if (fs::is_directory(root, ec)) {
    search.folder(root, 0);
  } else if (fs::is_regular_file(root, ec) && has_ending(root, ".gguf")) {
    search.gguf(root);
  }
  std::vector<Candidate> out = std::move(search).take();
  std::sort(out.begin(), out.end(),
            [](const Candidate& a, const Candidate& b) { return a.path < b.path; });
  return out;
}

}  // namespace kvasir::hub
