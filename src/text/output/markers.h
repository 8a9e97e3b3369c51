// The markers one parser listens to. Tagged text is UTF-8 in which a recognised marker stands as
// the byte 0xFF (never part of UTF-8) and its number + 1, so that what the model merely spelled and
// what it meant as a marker stay apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace kvasir::text::out {

using Marker = std::uint8_t;

inline constexpr char kTag = '\xFF';
inline constexpr std::size_t kTagBytes = 2;

std::string tagged_marker(Marker marker);  // the two bytes

// One step through tagged text: a marker, or one byte of text.
struct Symbol {
  bool is_marker = false;
  Marker marker = 0;
  char byte = 0;
  std::size_t n_bytes() const { return is_marker ? kTagBytes : 1; }
};
Symbol symbol_at(std::string_view tagged, std::size_t at);

class MarkerSet {
 public:
  explicit MarkerSet(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Same text, same number. Empty text: a marker that only this room's parts write.
  Marker add(std::string_view text);
  // A special token that is shown as its text, not as a marker.
  void add_spelled(std::string_view text);

  // What the token is in tagged text; empty: an ordinary token, to be decoded.
  std::string tagged_token(TokenId id) const;

  bool is_special(Marker marker) const { return entries_[marker].id.has_value(); }
  std::string_view text(Marker marker) const { return entries_[marker].text; }
  // How the marker looks in the stream before texts are searched for markers.
  std::string literal(Marker marker) const;
  std::string spell(std::string_view tagged) const;  // every marker as its text

 private:
  struct Entry {
    std::string text;
    std::optional<TokenId> id;  // where the vocabulary has it as a special token
  };
  std::optional<TokenId> special_id(std::string_view text) const;

  Tokenizer tokenizer_;
  std::vector<Entry> entries_;  // few: searched one by one
  std::vector<std::pair<TokenId, std::string>> spelled_;
};

}  // namespace kvasir::text::out
