// Byte-pair encoding by ranked merges (TXT-6), as in tokenizer.json and GGUF "gpt2".
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/merge.h"
#include "text/tokenizer/model.h"

namespace kvasir::text::tok {

struct BpeOptions {
  std::string unk_token;  // empty: unknown characters vanish
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuses_unk = false;
  bool has_byte_fallback = false;
  bool ignores_merges = false;  // a piece that is a token is taken whole
};

// (left id, right id) → rank and joined id, in one flat table.
class MergeTable {
 public:
  struct Entry {
    std::uint32_t rank = 0;
    TokenId id = 0;
  };
  explicit MergeTable(std::size_t n_merges);
  void set(TokenId left, TokenId right, Entry entry);  // a pair given twice keeps its last rank
  const Entry* find(TokenId left, TokenId right) const noexcept;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Entry entry;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  std::size_t slot_of(std::uint64_t key) const noexcept;
  std::vector<Slot> slots_;
};

class Bpe final : public Model {
 public:
  // Merges go in by rank, 0 first. Error: a part or the whole of a merge is not in the vocabulary.
  Bpe(const Vocab& vocab, BpeOptions options, std::size_t n_merges);
  Status add_merge(std::string_view left, std::string_view right, std::uint32_t rank);

  Status tokenize(std::string_view piece,
                  std::vector<TokenId>& out,
                  Scratch& scratch) const override;

 private:
  static constexpr TokenId kNoToken = 0xFFFFFFFF;
  static constexpr std::size_t kTableEnd =
      0x250;  // code points with a precomputed token; holds the byte alphabet

  void merge_word(std::string_view word, std::vector<TokenId>& out, Scratch& scratch) const;
  void start_symbols(std::string_view piece, Scratch& scratch) const;
  bool add_bytes(std::string_view text, std::uint32_t begin, Scratch& scratch) const;
  TokenId char_token(char32_t c, std::string_view text) const noexcept;

  const Vocab& vocab_;
  BpeOptions o_;
  MergeTable merges_;
  std::array<TokenId, kTableEnd> char_tokens_;
  std::array<TokenId, 256> byte_tokens_;  // <0xHH>
  std::string joined_;                    // of the merge being added
  TokenId unk_ = kNoToken;
  WordBorders borders_;
  bool is_plain_ = true;  // no prefix, no suffix
};

// The ids of <0x00> … <0xFF>, 0xFFFFFFFF where absent.
std::array<TokenId, 256> byte_fallback_tokens(const Vocab& vocab);

Result<std::unique_ptr<Model>> parse_bpe(const json::Value& spec, const Vocab& vocab);

}  // namespace kvasir::text::tok
