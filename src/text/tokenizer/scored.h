// Models over pieces with scores: SentencePiece BPE (TXT-7) and Unigram (TXT-8).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/merge.h"
#include "text/tokenizer/model.h"

namespace kvasir::text::tok {

struct ScoredOptions {
  std::optional<TokenId> unk;
  bool has_byte_fallback = false;
  // Per id; pieces that text can never become (control, byte, unknown tokens) are false. Empty: all
  // true.
  std::vector<bool> is_mergeable;
};

// Joins the adjacent pair whose joined text has the highest score; what is no piece at the end
// becomes bytes or unk, neighbouring unks fused. Unused pieces are no goal of a merge.
class ScoredBpe final : public Model {
 public:
  ScoredBpe(const Vocab& vocab,
            std::vector<float> scores,
            ScoredOptions options);  // scores: [vocab.end()]
  Status tokenize(std::string_view piece,
                  std::vector<TokenId>& out,
                  Scratch& scratch) const override;

 private:
  void merge_word(std::string_view word, Scratch& scratch) const;
  std::optional<TokenId> mergeable(std::string_view text) const noexcept;
  Status emit(std::string_view text, bool& is_after_unk, std::vector<TokenId>& out) const;

  const Vocab& vocab_;
  std::vector<float> scores_;
  ScoredOptions o_;
  std::array<TokenId, 256> byte_tokens_;
  WordBorders borders_;
};

// The most probable segmentation (Kudo 2018), by Viterbi.
class Unigram final : public Model {
 public:
  Unigram(const Vocab& vocab,
          std::vector<double> scores,
          ScoredOptions options);  // scores: [vocab.end()], log
  Status tokenize(std::string_view piece,
                  std::vector<TokenId>& out,
                  Scratch& scratch) const override;

 private:
  Status emit(std::string_view text, std::vector<TokenId>& out) const;
  void forward(std::string_view piece, std::vector<Scratch::Node>& nodes) const;

  const Vocab& vocab_;
  std::vector<double> scores_;
  ScoredOptions o_;
  ByteTrie trie_;
  double unk_score_ = 0;
  std::array<TokenId, 256> byte_tokens_;
};

Result<std::unique_ptr<Model>> parse_unigram(const json::Value& spec, const Vocab& vocab);

}  // namespace kvasir::text::tok
