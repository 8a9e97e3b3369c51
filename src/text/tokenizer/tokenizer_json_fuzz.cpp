// tokenizer.json, and a text after a NUL byte: loading, encoding and decoding must neither crash
// nor hang.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir::text;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t border = std::min(all.find('\0'), all.size());
  const std::string_view text = all.substr(std::min(border + 1, all.size()));
  const auto t = all.starts_with('{') ? Tokenizer::from_json(all.substr(0, border), text)
                                      : Tokenizer::from_sentencepiece(all);
  if (!t) return 0;
  const auto ids = t->encode(text, {.parse_special = size % 2 == 0});
  if (!ids) return 0;
  Detokenizer stream(*t);
  std::string streamed;
  for (const auto id : *ids) streamed += stream.push(id);
  streamed += stream.finish();
  KVASIR_CHECK(streamed == t->decode(*ids));
  return 0;
}
