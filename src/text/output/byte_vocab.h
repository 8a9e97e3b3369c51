// A tokenizer.json of one byte-level token a byte, special tokens and longer chunks: with it tests
// and the fuzz target cut text at every byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "json/json.h"

namespace kvasir::text::out {

// How byte-level vocabularies spell bytes: GPT-2's table of printable characters.
inline std::string byte_level_spelling(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    char32_t shifted = 256;
    for (unsigned b = 0; b < byte; ++b) {
      if (b < 33 || (b > 126 && b < 161) || b == 173) ++shifted;
    }
    const bool is_shifted = byte < 33 || (byte > 126 && byte < 161) || byte == 173;
    append_utf8(out, is_shifted ? shifted : char32_t{byte});
  }
  return out;
}

// Ids: the bytes 0…255, then the chunks, then the special tokens.
inline std::string byte_tokenizer_json(const std::vector<std::string>& specials,
                                       const std::vector<std::string>& chunks) {
  json::Object vocab;
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    vocab.push_back(byte_level_spelling(std::string(1, static_cast<char>(byte))), id++);
  }
  for (const std::string& chunk : chunks) vocab.push_back(byte_level_spelling(chunk), id++);
  json::Array added;
  for (const std::string& special : specials) {
    added.push_back(json::Object{{"id", id++},
                                 {"content", special},
                                 {"special", true},
                                 {"normalized", false},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false}});
  }
  const json::Object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", false},
                                {"use_regex", false}};
  const json::Object model{{"type", "BPE"}, {"merges", json::Array{}}, {"vocab", std::move(vocab)}};
  return json::write(json::Object{{"added_tokens", std::move(added)},
                                  {"pre_tokenizer", byte_level},
                                  {"decoder", byte_level},
                                  {"model", model}});
}

}  // namespace kvasir::text::out
