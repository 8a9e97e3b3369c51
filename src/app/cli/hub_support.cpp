#include "app/cli/hub_support.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/utf8.h"

namespace kvasir::app {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxTokenBytes = 4096;

// The first of these variables that is set and not empty.
std::string environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value && *value) return value;
  }
  return {};
}

fs::path cache_home() {
  if (const std::string xdg = environment({"XDG_CACHE_HOME"}); !xdg.empty()) return xdg;
  const std::string home = environment({"HOME"});
  return home.empty() ? fs::path() : fs::path(home) / ".cache";
}

// "~/models" is what people write in variables, where no shell expands it.
fs::path expanded(const std::string& path) {
  const std::string home = environment({"HOME"});
  if (path != "~" && !path.starts_with("~/")) return path;
  return home.empty() ? fs::path(path) : fs::path(home + path.substr(1));
}

std::string token_of(const fs::path& hub_home) {
  std::string token = environment({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (token.empty()) {
    const std::string path = environment({"HF_TOKEN_PATH"});
    token =
        read_file(path.empty() ? hub_home / "token" : expanded(path), kMaxTokenBytes).value_or("");
  }
  std::erase_if(token, [](char c) { return static_cast<unsigned char>(c) <= ' '; });
  return token;
}

std::string scaled(std::uint64_t n, const std::array<const char*, 5>& units) {
  double value = static_cast<double>(n);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 48> out = {};
  std::snprintf(out.data(), out.size(), unit > 0 && value < 10 ? "%.1f %s" : "%.0f %s", value,
                units[unit]);
  return out.data();
}

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

void add_hub_flags(CLI::App& verb, HubFlags& flags) {
  verb.add_option("--cache-dir", flags.cache,
                  "Hub cache (default: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub)");
  verb.add_option("--registry", flags.registry,
                  "File of known models (default: ~/.cache/kvasir/registry.sqlite)");
}

Result<hub::HubOptions> hub_options(const HubFlags& flags) {
  hub::HubOptions out;
  const fs::path home = cache_home();
  const std::string hf_home = environment({"HF_HOME"});
  const fs::path hub_home = hf_home.empty() ? home / "huggingface" : expanded(hf_home);
  const std::string cache = environment({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  out.cache = !flags.cache.empty() ? fs::path(flags.cache)
              : !cache.empty()     ? expanded(cache)
                                   : hub_home / "hub";
  if (home.empty() && out.cache.is_relative() && flags.cache.empty() && cache.empty())
    return invalid("no HOME, so no place for the hub cache; set HF_HUB_CACHE or --cache-dir");
  std::error_code ec;
  out.cache = fs::absolute(out.cache, ec).lexically_normal();
  if (!flags.registry.empty()) {
    out.registry = flags.registry;
  } else if (!home.empty()) {
    out.registry = home / "kvasir" / "registry.sqlite";
  }
  if (const std::string endpoint = environment({"HF_ENDPOINT"}); !endpoint.empty())
    out.endpoint = endpoint;
  out.token = token_of(hub_home);
  out.ca_file = environment({"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"});
  return out;
}

bool is_offline() {
  std::string value = environment({"HF_HUB_OFFLINE"});
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string size_text(std::uint64_t n_bytes) {
  return scaled(n_bytes, {"B", "kB", "MB", "GB", "TB"});
}

std::string count_text(std::uint64_t n) {
  std::string out = scaled(n, {"", "K", "M", "G", "T"});
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out += std::string(widths[i] - width_of(row[i]) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

}  // namespace kvasir::app
