// Streaming detokenization (TXT-15…18): ids one at a time → text as soon as it is certain. The
// concatenation of what push and finish return equals Tokenizer::decode of all the ids with the
// same options, however they are fed; always valid UTF-8. O(1) amortised a token. One Detokenizer
// is one stream: not for two threads at once.
#pragma once

#include <memory>
#include <string>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace kvasir::text {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {});
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  std::string push(TokenId id);  // text that became certain, maybe empty; unknown ids add nothing
  std::string finish();          // the rest; unfinished characters as U+FFFD. Call once, last.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvasir::text
