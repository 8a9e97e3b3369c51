// SentencePiece's precompiled character map: a Darts double-array trie over UTF-8 and a pool of
// replacement texts (format: SentencePiece normalizer.cc, "precompiled_charsmap"; units as in
// darts-clone).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalizer.h"

namespace kvasir::text::tok {

class Charsmap {
 public:
  struct Hit {
    std::size_t n_bytes = 0;       // of the input
    std::string_view replacement;  // may be empty: the input vanishes
  };

  static Result<Charsmap> parse(std::string_view blob);  // empty blob: maps nothing
  std::optional<Hit> shortest(
      std::string_view text) const noexcept;  // a key that is a prefix of text
  std::optional<Hit> longest(std::string_view text) const noexcept;

 private:
  template <class OnKey>
  void walk(std::string_view text, const OnKey& on_key) const noexcept;
  std::string_view replacement(std::uint32_t offset) const noexcept;

  std::vector<std::uint32_t> units_;
  std::string pool_;  // NUL-terminated texts
};

// The Precompiled normalizer of tokenizer.json: whole grapheme clusters first, then single
// characters; the reference takes the shortest key and replaces all it looked at.
std::unique_ptr<Normalizer> make_precompiled(Charsmap charsmap);

struct SentencePieceRules {
  bool adds_dummy_prefix = true;
  bool removes_extra_spaces = false;
  bool escapes_spaces = true;  // ' ' → U+2581
  // Only the text's very start gets the prefix, not every stretch after a special token.
  bool prefixes_start_only = false;

  // Leading spaces that decoding takes back.
  std::size_t n_stripped() const noexcept {
    return removes_extra_spaces ? std::numeric_limits<std::size_t>::max()
           : adds_dummy_prefix  ? 1
                                : 0;
  }
};
// SentencePiece's own normalization, for tokenizer.model and GGUF: the longest key at each place.
// `kept` are texts that the map leaves alone (user-defined symbols).
std::unique_ptr<Normalizer> make_sentencepiece_normalizer(Charsmap charsmap,
                                                          SentencePieceRules rules,
                                                          ByteTrie kept = {});

}  // namespace kvasir::text::tok
