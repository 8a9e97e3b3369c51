// Added tokens (TXT-3): found in the text before the model sees it. Leftmost-longest, with the
// flags of tokenizer.json. Immutable after load.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalized.h"

namespace kvasir::text::tok {

struct AddedToken {
  std::string content;
  std::string spelling = {};  // what it decodes to; empty: its content
  TokenId id = 0;
  bool is_special = false;
  bool is_normalized = false;  // matched in normalized text
  bool strips_left = false, strips_right = false;
  bool is_single_word = false;
};

// A stretch of text, or a token found in it.
struct Part {
  std::size_t begin = 0, end = 0;  // bytes
  std::optional<TokenId> token;
};

class AddedTokens {
 public:
  // `pattern`: what to look for, the content itself or (is_normalized) its normalized form. The
  // first token of an id or pattern stays.
  void add(AddedToken token, std::string_view pattern);
  void make_special(TokenId id);

  const AddedToken* find(TokenId id) const noexcept;
  const AddedToken* find(std::string_view content) const noexcept;
  const std::vector<AddedToken>& all() const noexcept { return tokens_; }

  bool has_raw() const noexcept { return !raw_.empty(); }
  bool has_normalized() const noexcept { return !normalized_.empty(); }
  // Splits n.text; special tokens match only where every byte may be special.
  void split_raw(const Normalized& n, std::vector<Part>& out) const { split(raw_, n, out); }
  void split_normalized(const Normalized& n, std::vector<Part>& out) const {
    split(normalized_, n, out);
  }

 private:
  struct Match {
    std::size_t end = 0;
    const AddedToken* token = nullptr;
  };
  void split(const ByteTrie& trie, const Normalized& n, std::vector<Part>& out) const;
  std::optional<Match> longest(const ByteTrie& trie, const Normalized& n, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  ByteTrie raw_, normalized_;  // pattern → index in tokens_
};

}  // namespace kvasir::text::tok
