// Text to tokens with a model's tokenizer alone: no weights are loaded. Any thread.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvasir/kvasir.h"

namespace kvasir {

// add_special: with the tokens the post-processor adds. parse_special: special tokens written in
// the text are matched.
Result<std::vector<TokenPiece>> tokenize_with_model(const std::filesystem::path& model,
                                                    std::string_view text,
                                                    bool add_special,
                                                    bool parse_special);

}  // namespace kvasir
