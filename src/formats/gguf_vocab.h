// The tokenizer that a GGUF file carries, as plain values. Copied out of the file on demand;
// whoever builds a tokenizer calls it once at load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_files.h"

namespace kvasir::formats {

struct GgufVocab {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece), "bert", …
  std::string pre;    // the pre-tokenizer's name: "smollm", "qwen2", "llama-bpe" …
  std::vector<std::string> tokens;
  std::vector<float> scores;              // empty, or one a token
  std::vector<std::int32_t> token_types;  // empty, or one a token: 1 normal, 2 unknown, 3 control,
                                          // 4 user, 5 unused, 6 byte
  std::vector<std::string> merges;        // "left right", best first
  std::optional<std::uint32_t> bos_id, eos_id, unknown_id, padding_id, separator_id, mask_id,
      cls_id, eot_id, eom_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::string chat_template;  // empty when there is none
};

// not_found for hub folders and files without tokenizer; invalid when lists disagree in length or
// an id is no token.
Result<GgufVocab> read_gguf_vocab(const ModelFiles& files);

}  // namespace kvasir::formats
