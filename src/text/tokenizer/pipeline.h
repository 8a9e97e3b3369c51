// All the parts of a tokenizer, put together by a loader and then shared as const.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "json/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/vocab.h"

namespace kvasir::text::tok {

inline constexpr std::size_t kMaxInputBytes = 16u << 20;  // TXT-14
inline constexpr std::size_t kMaxFileBytes = 256u << 20;  // TXT-14

struct Pipeline {
  Pipeline() = default;
  Pipeline(const Pipeline&) = delete;  // the model refers to the vocabulary

  Vocab vocab;  // the model's; added tokens may lie outside
  AddedTokens added;
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers;
  std::unique_ptr<Model> model;
  PostProcessor post;
  DecoderSpec decoder;
  std::optional<TokenId> bos, eos, unk, pad;
  std::vector<std::pair<std::string, std::string>> named_special_tokens;
  std::vector<TokenId> special_ids;  // ascending
  std::size_t end = 0;               // largest id + 1

  std::string_view piece(TokenId id) const noexcept;
  std::optional<TokenId> find(std::string_view piece) const noexcept;
  bool is_special(TokenId id) const noexcept;

  Status normalize(Normalized& n) const;
  // Adds a token; a normalized one is looked for in its normalized form.
  Status add_token(AddedToken token);
  // The id that the reference gives a token that the vocabulary lacks, whatever the file says.
  TokenId next_added_id() const noexcept;
  void finish_loading();  // after all tokens are there

  Result<std::vector<TokenId>> encode(Normalized text) const;

 private:
  Status encode_stretch(Normalized n, std::vector<TokenId>& out, Scratch& scratch) const;
  Status encode_plain(std::string text,
                      bool is_from_start,
                      std::vector<TokenId>& out,
                      Scratch& scratch) const;
};

using PipelinePtr = std::shared_ptr<const Pipeline>;

// tokenizer_config.json, in three steps: its tokens before the model is built, the rest when all is
// there.
Status add_config_tokens(const json::Value& config, Pipeline& p);
void apply_config_rules(const json::Value& config, Pipeline& p);
// Special tokens that are pieces of the model's vocabulary are hidden from text.
void hide_special_tokens(Pipeline& p);

Result<PipelinePtr> load_json(std::string_view tokenizer_json, const json::Value& config);
Result<PipelinePtr> load_sentencepiece(std::string_view bytes, const json::Value& config);
Result<PipelinePtr> load_gguf(const GgufVocab& vocab);

}  // namespace kvasir::text::tok
