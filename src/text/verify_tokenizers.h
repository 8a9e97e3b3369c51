// Compares tokenizers with reference encodings, for `kvasir verify tokenizers` and the tests: every
// case's ids, ids with special tokens, and both decodings. Reads only; no thread rule.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace kvasir::text {

struct TokenizerSummary {
  std::size_t n_tokenizers = 0;
  std::size_t n_cases = 0;
  std::size_t n_differ =
      0;  // cases with any difference; a tokenizer that does not load: all its cases
};

// tokenizer_dir/NAME/ holds tokenizer.json[.xz] or tokenizer.model (links to folders are followed),
// cases_dir/ NAME.json[.xz] its cases; tokenizer_dir may also be one such NAME folder itself.
// tokenizer_config.json is not used: the references are of the tokenizer alone. `report` gets a
// line a tokenizer, and one for its first difference. Errors: not_found when there is no tokenizer
// with cases, or a cases file is damaged.
Result<TokenizerSummary> verify_tokenizers(
    const std::filesystem::path& tokenizer_dir,
    const std::filesystem::path& cases_dir,
    const std::function<void(std::string_view line)>& report);

}  // namespace kvasir::text
