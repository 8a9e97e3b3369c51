// How the stretches between and on matches become pieces: the five behaviours of a Split.
#pragma once

#include <vector>

#include "text/tokenizer/pre_tokenizer.h"

namespace kvasir::text::tok {

struct Stretch {
  Range range;
  bool is_match = false;
};

// Matches in [0, n_bytes) and the gaps between them, in order; the roles swapped when is_inverted.
void cover(const std::vector<Range>& matches,
           std::size_t n_bytes,
           bool is_inverted,
           std::vector<Stretch>& out);

// Applies `behavior` to stretches and appends the pieces, shifted by `base`; empty pieces vanish.
void append_pieces(const std::vector<Stretch>& stretches,
                   Behavior behavior,
                   std::size_t base,
                   std::vector<Range>& out);

// Splits each piece: `find` fills the matches of a piece's text.
template <class Find>
Status split_pieces(PreTokens& p, Behavior behavior, bool is_inverted, const Find& find) {
  std::vector<Range> out;
  out.reserve(p.pieces.size() * 2);
  std::vector<Range> matches;
  std::vector<Stretch> stretches;
  for (const Range& piece : p.pieces) {
    matches.clear();
    stretches.clear();
    KVASIR_TRY_DO(
        find(std::string_view(p.text).substr(piece.begin, piece.end - piece.begin), matches));
    cover(matches, piece.end - piece.begin, is_inverted, stretches);
    append_pieces(stretches, behavior, piece.begin, out);
  }
  if (!p.pieces.empty() && (out.empty() || out[0].begin != p.pieces[0].begin))
    p.is_from_start = false;
  p.pieces = std::move(out);
  return {};
}

}  // namespace kvasir::text::tok
