#include "text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr std::size_t kMaxMappedCluster = 6;  // bytes; longer grapheme clusters are taken apart

// darts-clone's unit: label in the low byte (with the leaf bit 31), a leaf flag, and a relative
// offset.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label(std::uint32_t unit) { return unit & (1u << 31 | 0xFF); }
std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
std::uint32_t leaf_value(std::uint32_t unit) { return unit & 0x7FFFFFFF; }

std::size_t cluster_bytes(std::string_view text) {
  const Char first = first_char(text);
  std::size_t at = first.n_bytes;
  auto before = static_cast<utf8proc_int32_t>(first.code_point);
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const Char c = first_char(text.substr(at));
    const auto next = static_cast<utf8proc_int32_t>(c.code_point);
    if (utf8proc_grapheme_break_stateful(before, next, &state)) break;
    before = next;
    at += c.n_bytes;
  }
  return at;
}

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap charsmap) : map_(std::move(charsmap)) {}

  Status apply(Normalized& n) const override {
    Rewriter rw(n);
    for (std::size_t at = 0; at < rw.in().size();) {
      const std::size_t end = at + cluster_bytes(rw.in().substr(at));
      if (end - at >= kMaxMappedCluster || !replace(rw, at, end)) each_character(rw, at, end);
      at = end;
    }
    rw.finish();
    return {};
  }

 private:
  bool replace(Rewriter& rw, std::size_t begin, std::size_t end) const {
    const auto hit = map_.shortest(rw.in().substr(begin, end - begin));
    if (!hit) return false;
    if (hit->replacement.empty()) {
      rw.drop(begin, end);
    } else {
      rw.emit(hit->replacement, begin, end);
    }
    return true;
  }

  void each_character(Rewriter& rw, std::size_t begin, std::size_t end) const {
    while (begin < end) {
      const std::size_t next = begin + first_char(rw.in().substr(begin)).n_bytes;
      if (!replace(rw, begin, next)) rw.keep(begin, next);
      begin = next;
    }
  }

  Charsmap map_;
};

class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(Charsmap charsmap, SentencePieceRules rules, ByteTrie kept)
      : map_(std::move(charsmap)),
        rules_(rules),
        kept_(std::move(kept)),
        space_(rules.escapes_spaces ? kSpaceMark : " ") {}

  Status apply(Normalized& n) const override {
    const bool wants_prefix =
        rules_.adds_dummy_prefix && (n.is_from_start || !rules_.prefixes_start_only);
    Rewriter rw(n);
    std::size_t pending_begin = 0;  // an inner run of spaces, written when something follows
    std::size_t pending_spaces = 0;
    bool is_started = false;
    for (std::size_t at = 0; at < rw.in().size();) {
      const Charsmap::Hit next = step(rw.in().substr(at));
      const std::size_t end = at + next.n_bytes;
      const std::string_view out = next.replacement;
      for (const char c : out) {
        if (c == ' ' && rules_.removes_extra_spaces) {
          if (pending_spaces++ == 0) pending_begin = at;
          continue;
        }
        if (!is_started && wants_prefix) rw.emit(space_, at, at);
        if (is_started && pending_spaces > 0) rw.emit(space_, pending_begin, at);
        is_started = true;
        pending_spaces = 0;
        rw.emit(c == ' ' ? space_ : std::string_view(&c, 1), at, end);
      }
      if (out.empty()) rw.drop(at, end);
      at = end;
    }
    if (rules_.removes_extra_spaces) rw.trim_end(space_);  // marks that the text itself had
    rw.finish();
    return {};
  }

 private:
  // What the next bytes of text become.
  Charsmap::Hit step(std::string_view text) const {
    std::size_t n_kept = 0;
    std::uint32_t node = ByteTrie::kRoot;
    for (std::size_t end = 0; end < text.size() && !kept_.empty();) {
      node = kept_.child(node, static_cast<unsigned char>(text[end]));
      if (node == ByteTrie::kNone) break;
      if (kept_.value(node) != ByteTrie::kNone) n_kept = end + 1;
      ++end;
    }
    if (n_kept > 0) return {n_kept, text.substr(0, n_kept)};
    if (const auto hit = map_.longest(text)) return *hit;
    const std::size_t n_bytes = first_char(text).n_bytes;
    return {n_bytes, text.substr(0, n_bytes)};
  }

  Charsmap map_;
  SentencePieceRules rules_;
  ByteTrie kept_;
  std::string_view space_;
};

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  Charsmap out;
  if (blob.empty()) return out;
  std::uint32_t trie_bytes = 0;
  if (blob.size() < sizeof trie_bytes) return invalid("tokenizer: character map cut short");
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  if (trie_bytes > blob.size() || trie_bytes % 4 != 0)
    return invalid("tokenizer: character map of a wrong size");
  out.units_.resize(trie_bytes / 4);
  if (trie_bytes > 0) std::memcpy(out.units_.data(), blob.data(), trie_bytes);
  out.pool_ = blob.substr(trie_bytes);
  return out;
}

std::string_view Charsmap::replacement(std::uint32_t at) const noexcept {
  if (at >= pool_.size()) return {};
  const std::string_view rest = std::string_view(pool_).substr(at);
  return rest.substr(0, rest.find('\0'));
}

template <class OnKey>
void Charsmap::walk(std::string_view text, const OnKey& on_key) const noexcept {
  if (units_.empty()) return;
  std::uint32_t node = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return;
    node ^= byte;
    if (node >= units_.size()) return;
    const std::uint32_t unit = units_[node];
    if (label(unit) != byte) return;
    node ^= offset(unit);
    if (node >= units_.size()) return;
    if (has_leaf(unit) && !on_key(i + 1, leaf_value(units_[node]))) return;
  }
}

std::optional<Charsmap::Hit> Charsmap::shortest(std::string_view text) const noexcept {
  std::optional<Hit> out;
  walk(text, [&](std::size_t n_bytes, std::uint32_t at) {
    out = Hit{n_bytes, replacement(at)};
    return false;
  });
  return out;
}

std::optional<Charsmap::Hit> Charsmap::longest(std::string_view text) const noexcept {
  std::optional<Hit> out;
  walk(text, [&](std::size_t n_bytes, std::uint32_t at) {
    out = Hit{n_bytes, replacement(at)};
    return true;
  });
  return out;
}

std::unique_ptr<Normalizer> make_precompiled(Charsmap charsmap) {
  return std::make_unique<Precompiled>(std::move(charsmap));
}

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(Charsmap charsmap,
                                                          SentencePieceRules rules,
                                                          ByteTrie kept) {
  return std::make_unique<SentencePieceNormalizer>(std::move(charsmap), rules, std::move(kept));
}

}  // namespace kvasir::text::tok
