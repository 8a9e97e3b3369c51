#include "kv/kv_signature.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace kvasir::kv {
namespace {

// A whole decimal number without sign or leading zero.
std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return value;
}

bool eat(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view next_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(':'), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// bf16 | f16 | f32 | affine:{bits}:{group} | turbo:{b}; empty when it is none of them.
std::string next_codec(std::string_view& text) {
  const std::string_view kind = next_word(text);
  if (is_one_of(kind, {"bf16", "f16", "f32"})) return std::string(kind);
  if (kind == "affine") {
    const std::string_view bits = next_word(text), group = next_word(text);
    if (is_one_of(bits, {"4", "8"}) && is_one_of(group, {"32", "64", "128"}))
      return "affine:" + std::string(bits) + ":" + std::string(group);
  }
  if (kind == "turbo") {
    const std::string_view bits = next_word(text);
    if (is_one_of(bits, {"2", "3", "4", "5", "8"})) return "turbo:" + std::string(bits);
  }
  return "";
}

// The layout word and, of a windowed one, its window; leaves `:{k}:{v}` or nothing.
bool read_layout(std::string_view& text, KvSignature& out) {
  if (is_one_of(text, {"recurrent", "latent", "latent+index", "mtp"})) {
    out.layout = text;
    text = {};
    return true;
  }
  if (eat(text, "paged:")) {
    out.layout = "paged";
    return true;
  }
  if (!eat(text, "windowed(")) return false;
  const std::size_t close = text.find("):");
  if (close == std::string_view::npos) return false;
  const auto window = number(text.substr(0, close));
  if (!window || *window == 0 || *window > std::numeric_limits<std::uint32_t>::max()) return false;
  out.layout = "windowed";
  out.window = static_cast<std::uint32_t>(*window);
  text.remove_prefix(close + 2);
  return true;
}

}  // namespace

Result<KvSignature> parse_signature(std::string_view text) {
  const Error unknown = invalid("unknown KV signature: " + std::string(text));
  KvSignature out;
  std::string_view rest = text;
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    const auto transition = number(text.substr(at + 1));
    if (!transition || *transition == 0) return unknown;
    out.transition = *transition;
    rest = text.substr(0, at);
  }
  if (!read_layout(rest, out)) return unknown;
  if (out.layout != "paged" && out.layout != "windowed") return out;
  if (rest.ends_with(':')) return unknown;
  out.k_codec = next_codec(rest);
  out.v_codec = next_codec(rest);
  if (out.k_codec.empty() || out.v_codec.empty() || !rest.empty()) return unknown;
  return out;
}

}  // namespace kvasir::kv
