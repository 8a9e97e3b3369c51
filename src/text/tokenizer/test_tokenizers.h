// Small tokenizers for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "text/tokenizer.h"

namespace kvasir::text {

// One that tests/data/tokenizers/make.py made.
inline Tokenizer made_tokenizer(const std::string& name) {
  auto out =
      Tokenizer::from_folder(std::filesystem::path(KVASIR_TEST_DATA) / "tokenizers/made" / name);
  if (!out) ADD_FAILURE() << out.error().what;
  return *std::move(out);
}

// A member list of a tokenizer.json around the characters a-z, space, '<', '|', '>', '_' as tokens
// 0…, "[a]" 100 and up.
inline std::string char_tokenizer_json(const std::string& more, const std::string& added = "") {
  std::string vocab;
  int id = 0;
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz <|>_")) {
    vocab += (id == 0 ? "\"" : ",\"") + std::string(1, c) + "\":" + std::to_string(id);
    ++id;
  }
  return R"({"added_tokens":[)" + added + R"(],"model":{"type":"BPE","merges":[],"vocab":{)" +
         vocab + "}}" + (more.empty() ? "" : "," + more) + "}";
}

inline Tokenizer load_json(const std::string& json, const std::string& config = "") {
  auto out = Tokenizer::from_json(json, config);
  if (!out) ADD_FAILURE() << out.error().what;
  return *std::move(out);
}

}  // namespace kvasir::text
