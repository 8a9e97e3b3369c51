#include "kv/kv_signature.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "codec/kv_codec.h"

namespace kvasir::kv {
namespace {

constexpr std::uint64_t kMostTransition = (std::uint64_t{1} << 53) - 1;  // whole in JSON

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

bool is_codec(codec::KvSide side, std::string_view text) {
  return is_one_of(text, {"bf16", "f16", "f32"}) ||
         codec::find_kv_codec(side, text, codec::ScaleType::bf16).has_value();
}

// {k}:{v}: names of codecs hold colons too, so each is tried.
bool read_codecs(std::string_view text, KvSignature& out) {
  for (std::size_t at = text.find(':'); at != text.npos; at = text.find(':', at + 1)) {
    const std::string_view k = text.substr(0, at), v = text.substr(at + 1);
    if (!is_codec(codec::KvSide::keys, k) || !is_codec(codec::KvSide::values, v)) continue;
    out.k_codec = k;
    out.v_codec = v;
    return true;
  }
  return false;
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
  const std::size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    const auto transition = number(text.substr(at + 1));
    if (!transition || *transition == 0 || *transition > kMostTransition) return unknown;
    out.transition = *transition;
    rest = text.substr(0, at);
  }
  if (!read_layout(rest, out)) return unknown;
  if (out.layout != "paged" && out.layout != "windowed") return out;
  if (!read_codecs(rest, out)) return unknown;
  return out;
}

}  // namespace kvasir::kv
