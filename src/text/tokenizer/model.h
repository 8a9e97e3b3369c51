// The models of tokenizer.json, SentencePiece and GGUF (TXT-6…9): one pre-token → token ids.
// Immutable after load; tokenize is const, with all working memory in the caller's Scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "json/json.h"
#include "text/tokenizer/vocab.h"

namespace kvasir::text::tok {

// Working memory of one encode call.
struct Scratch {
  struct Symbol {
    std::int32_t prev = -1;
    std::int32_t next = -1;
    TokenId id = 0;
    std::uint32_t begin = 0;    // bytes of the piece
    std::uint32_t n_bytes = 0;  // 0: merged away
  };
  struct Candidate {
    std::uint64_t rank = 0;  // least first
    std::uint32_t left = 0;
    std::uint32_t right_bytes = 0, left_bytes = 0;  // to notice that a symbol has changed since
    TokenId id = 0;
  };
  struct Node {  // Unigram: the best way to reach a place
    double score = 0;
    std::uint32_t from = 0;
    TokenId id = 0;
    bool is_reached = false;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<Node> nodes;
  std::vector<std::uint32_t> ends;
};

class Model {
 public:
  virtual ~Model() = default;
  // piece: valid UTF-8, not empty. Error: invalid_argument when the text has no tokens and the
  // model no unk.
  virtual Status tokenize(std::string_view piece,
                          std::vector<TokenId>& out,
                          Scratch& scratch) const = 0;
};

// "model" of tokenizer.json: first its vocabulary, then (special tokens being hidden in it) the
// model, which keeps a reference to the vocabulary.
Status read_model_vocab(const json::Value& spec, Vocab& vocab);
Result<std::unique_ptr<Model>> parse_model(const json::Value& spec, const Vocab& vocab);

}  // namespace kvasir::text::tok
