// Tokenizers (TXT-1…14): text → token ids and back, from tokenizer.json, SentencePiece
// tokenizer.model or GGUF metadata. Ids equal those of the reference libraries on every text; work
// is linear and stack use constant for any text. Called by the chat layer, the engine's delivery,
// grammars and `verify tokenizers`. A Tokenizer is a handle on an immutable pipeline: copies are
// cheap, all const members are safe from many threads at once. Files are untrusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir::text {

namespace tok {
struct Pipeline;
}

// A stretch of one text. Special tokens match only where every byte they cover lies in spans with
// parse_special (TXT-32); words and pieces cross span borders as if there were none.
struct TextSpan {
  std::string_view text;
  bool parse_special = false;
};

struct EncodeOptions {
  bool add_special = true;    // what the post-processor puts around a text
  bool parse_special = true;  // special tokens written in the text become their ids
};

struct DecodeOptions {
  bool skip_special = true;
  // False: the ids go on from earlier text, so no leading space is dropped (TXT-17).
  bool is_start = true;
};

// tokenizer.ggml.* of a GGUF file, as read; empty or absent where the file has no such key.
struct GgufVocab {
  std::string model = {};                // "llama", "gpt2", "bert", "t5"
  std::string pre = {};                  // "llama-bpe", …; for "gpt2" only
  std::vector<std::string> tokens = {};  // [n_vocab]
  std::vector<float> scores = {};        // [n_vocab] or empty
  // [n_vocab] or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::int32_t> token_types = {};
  std::vector<std::string> merges = {};   // "left right", by rank
  std::string precompiled_charsmap = {};  // bytes
  std::optional<TokenId> bos = {}, eos = {}, unk = {}, pad = {}, sep = {}, cls = {}, mask = {};
  std::optional<bool> add_bos = {}, add_eos = {};
  std::optional<bool> add_space_prefix = {}, remove_extra_whitespaces = {};
};

struct FolderOptions {
  // tokenizer_config.json: special tokens by name, add_bos_token, add_eos_token,
  // clean_up_tokenization_spaces.
  bool uses_config = true;
};

class Tokenizer {
 public:
  // tokenizer.json[.xz], else tokenizer.model, with tokenizer_config.json beside it. Errors:
  // not_found (neither file), invalid_argument or unsupported naming the part that is wrong or not
  // understood.
  static Result<Tokenizer> from_folder(const std::filesystem::path& folder,
                                       const FolderOptions& options = {});
  static Result<Tokenizer> from_json(std::string_view tokenizer_json,
                                     std::string_view tokenizer_config = {});
  static Result<Tokenizer> from_sentencepiece(std::string_view model_bytes,
                                              std::string_view tokenizer_config = {});
  static Result<Tokenizer> from_gguf(const GgufVocab& vocab);

  // Text of any bytes (malformed UTF-8 → U+FFFD), at most 16 MiB. Errors: invalid_argument (too
  // long, or characters a model without unk has no token for), capacity (a pre-tokenizer's pattern
  // blows up on this text).
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  Result<std::vector<TokenId>> encode(std::span<const TextSpan> spans, bool add_special) const;
  // A rendered chat template: gets the leading special tokens of the post-processor (never the
  // trailing ones), and one BOS less where both the text and the post-processor begin with it
  // (TXT-13).
  Result<std::vector<TokenId>> encode_chat(std::span<const TextSpan> spans) const;
  Result<std::vector<TokenId>> encode_pair(std::string_view a,
                                           std::string_view b) const;  // special tokens added

  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  std::size_t vocab_size() const noexcept;  // largest id + 1
  bool has_token(TokenId id) const noexcept;
  std::string_view piece(
      TokenId id) const noexcept;  // as the vocabulary spells it; empty for an unknown id
  std::string token_bytes(
      TokenId id) const;  // what the token adds in the middle of a text; maybe no UTF-8
  std::optional<TokenId> find(std::string_view piece) const noexcept;

  bool is_special(TokenId id) const noexcept;
  const std::vector<TokenId>& special_ids() const noexcept;  // ascending
  std::optional<TokenId> bos() const noexcept;
  std::optional<TokenId> eos() const noexcept;
  std::optional<TokenId> unk() const noexcept;
  std::optional<TokenId> pad() const noexcept;
  bool adds_bos() const noexcept;  // encode(text) begins with bos
  bool adds_eos() const noexcept;
  // ("bos_token", "<s>"), …: the special tokens that the files name, for template variables.
  const std::vector<std::pair<std::string, std::string>>& named_special_tokens() const noexcept;

  // For the other parts of this room.
  explicit Tokenizer(std::shared_ptr<const tok::Pipeline> pipeline)
      : pipeline_(std::move(pipeline)) {}
  const tok::Pipeline& pipeline() const noexcept { return *pipeline_; }

 private:
  std::shared_ptr<const tok::Pipeline>
      pipeline_;  // shared by copies and by the detokenizers of running streams
};

}  // namespace kvasir::text
