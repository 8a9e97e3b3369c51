// Text to tokens with a model's tokenizer alone: no weights are loaded. Any thread.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "kvasir/kvasir.h"

namespace kvasir {

// add_special: with the tokens the post-processor adds. parse_special: special tokens written in
// the text are matched.
Result<std::vector<TokenPiece>> tokenize_with_model(const std::filesystem::path& model,
                                                    std::string_view text,
                                                    bool add_special,
                                                    bool parse_special);

// {"id", "piece"}. A piece may end inside a character: of such a one U+FFFD stands for what is no
// UTF-8, and "bytes" has it as it is.
json::Object piece_json(const TokenPiece& piece);

}  // namespace kvasir
