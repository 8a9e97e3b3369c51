// Models over whole words: WordPiece (TXT-9) and WordLevel.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"

namespace kvasir::text::tok {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string prefix = "##";  // of pieces that continue a word
  std::size_t max_chars = 100;
};

// Greedy longest pieces from the left; a word that cannot be spelled, or is too long, is one unk.
class WordPiece final : public Model {
 public:
  WordPiece(const Vocab& vocab, WordPieceOptions options);
  Status tokenize(std::string_view piece,
                  std::vector<TokenId>& out,
                  Scratch& scratch) const override;

 private:
  Status unknown(std::vector<TokenId>& out) const;

  WordPieceOptions o_;
  std::optional<TokenId> unk_;
  ByteTrie initial_;     // pieces as they are
  ByteTrie continuing_;  // pieces that start with the prefix, without it
};

Result<std::unique_ptr<Model>> parse_word_piece(const json::Value& spec, const Vocab& vocab);
Result<std::unique_ptr<Model>> parse_word_level(const json::Value& spec, const Vocab& vocab);

}  // namespace kvasir::text::tok
