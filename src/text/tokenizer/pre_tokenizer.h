// The pre-tokenizers of tokenizer.json (TXT-5): text → the stretches that the model sees one at a
// time. Immutable after parse; apply is const and safe on many threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "text/tokenizer/regex.h"

namespace kvasir::text::tok {

struct PreTokens {
  std::string text;
  std::vector<Range> pieces;  // ascending, not empty, within text
  bool is_from_start = true;  // the first piece begins where the whole input does
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status apply(PreTokens& p) const = 0;
};

Result<std::vector<std::unique_ptr<PreTokenizer>>> parse_pre_tokenizers(const json::Value& spec);

enum class Behavior : std::uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};
std::unique_ptr<PreTokenizer> make_split(Regex pattern, Behavior behavior, bool is_inverted);
std::unique_ptr<PreTokenizer> make_byte_level();  // no prefix space, no pattern
std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer();

}  // namespace kvasir::text::tok
