// tokenizer.ggml.pre: the names that GGUF files use for the pre-tokenizers of published models, and
// their patterns.
#pragma once

#include <span>
#include <string_view>

namespace kvasir::text::tok {

struct GgufPre {
  std::span<const std::string_view>
      patterns;  // Oniguruma syntax; applied one after the other, matches isolated
  bool ignores_merges = false;
  bool adds_bos = false;          // where the file does not say
  bool has_nfc = false;           // the model's own tokenizer normalizes
  bool has_plain_pieces = false;  // pieces are UTF-8 with ▁ for spaces, not the byte alphabet
};

const GgufPre* find_gguf_pre(std::string_view name) noexcept;  // nullptr: unknown

}  // namespace kvasir::text::tok
