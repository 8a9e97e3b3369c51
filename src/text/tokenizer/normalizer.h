// The normalizers of tokenizer.json (TXT-4). Immutable after parse; apply is const and safe on many
// threads.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "text/tokenizer/normalized.h"

namespace kvasir::text::tok {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Status apply(Normalized& n) const = 0;  // n.text is valid UTF-8 before and after
};

// null → no normalizer (an empty list). Errors name the type or field that is not understood.
Result<std::vector<std::unique_ptr<Normalizer>>> parse_normalizers(const json::Value& spec);

std::unique_ptr<Normalizer> make_prepend(std::string prefix);
Result<std::unique_ptr<Normalizer>> make_replace(std::string_view literal, std::string content);
std::unique_ptr<Normalizer> make_bert_normalizer(bool is_lowercase, bool strips_accents);

enum class Form : std::uint8_t { nfc, nfd, nfkc, nfkd };
std::unique_ptr<Normalizer> make_unicode_form(Form form);

}  // namespace kvasir::text::tok
