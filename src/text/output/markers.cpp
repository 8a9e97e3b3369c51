#include "text/output/markers.h"

#include "base/check.h"

namespace kvasir::text::out {

std::string tagged_marker(Marker marker) { return {kTag, static_cast<char>(marker + 1)}; }

Symbol symbol_at(std::string_view tagged, std::size_t at) {
  if (tagged[at] != kTag) return {.byte = tagged[at]};
  KVASIR_CHECK(at + 1 < tagged.size()) << "tagged text is cut inside a marker";
  return {.is_marker = true, .marker = static_cast<Marker>(tagged[at + 1] - 1)};
}

std::optional<TokenId> MarkerSet::special_id(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  const std::optional<TokenId> id = tokenizer_.find(text);
  return id && tokenizer_.is_special(*id) ? id : std::nullopt;
}

Marker MarkerSet::add(std::string_view text) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].text == text) return static_cast<Marker>(i);
  }
  KVASIR_CHECK(entries_.size() < 100) << "too many markers";
  entries_.push_back({std::string(text), special_id(text)});
  return static_cast<Marker>(entries_.size() - 1);
}

void MarkerSet::add_spelled(std::string_view text) {
  if (const auto id = special_id(text)) spelled_.emplace_back(*id, text);
}

std::string MarkerSet::tagged_token(TokenId id) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].id == id) return tagged_marker(static_cast<Marker>(i));
  }
  for (const auto& [spelled_id, text] : spelled_) {
    if (spelled_id == id) return text;
  }
  return {};
}

std::string MarkerSet::literal(Marker marker) const {
  return is_special(marker) ? tagged_marker(marker) : entries_[marker].text;
}

std::string MarkerSet::spell(std::string_view tagged) const {
  std::string out;
  out.reserve(tagged.size());
  for (std::size_t at = 0; at < tagged.size();) {
    const Symbol symbol = symbol_at(tagged, at);
    if (symbol.is_marker) {
      out += entries_[symbol.marker].text;
    } else {
      out += symbol.byte;
    }
    at += symbol.n_bytes();
  }
  return out;
}

}  // namespace kvasir::text::out
