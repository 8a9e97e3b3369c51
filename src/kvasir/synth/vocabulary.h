// A byte-level BPE vocabulary of any size: all bytes, then letters put together one by one, so that
// every id is text and any text has ids. Special tokens stand where the configuration says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "json/json.h"

namespace kvasir::synth {

struct Special {
  std::string role;  // "bos", "eos", "pad"
  std::string text;
  std::uint32_t id = 0;
};

struct Vocabulary {
  std::vector<std::string> tokens;  // [n], in byte-level spelling
  std::vector<std::string> merges;  // "left right", by rank
  std::vector<Special> specials;    // roles may share a token
  std::string chat_template;

  bool is_special(std::uint32_t id) const noexcept;
};

// config: of the text model. Nothing when n is too small for all bytes, or too large (950,000).
std::optional<Vocabulary> make_vocabulary(const json::Value& config, std::uint32_t n);

std::string tokenizer_json(const Vocabulary& vocabulary);         // tokenizer.json
std::string tokenizer_config_json(const Vocabulary& vocabulary);  // tokenizer_config.json

}  // namespace kvasir::synth
