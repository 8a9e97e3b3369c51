#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

std::size_t trailing_space_begin(std::string_view text) {
  while (!text.empty()) {
    const Char c = last_char(text);
    if (!is_whitespace(c.code_point)) break;
    text.remove_suffix(c.n_bytes);
  }
  return text.size();
}

std::size_t leading_space_bytes(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size()) {
    const Char c = first_char(text.substr(n));
    if (!is_whitespace(c.code_point)) break;
    n += c.n_bytes;
  }
  return n;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool is_free_left = begin == 0 || !is_word(last_char(text.substr(0, begin)).code_point);
  const bool is_free_right =
      end == text.size() || !is_word(first_char(text.substr(end)).code_point);
  return is_free_left && is_free_right;
}

}  // namespace

void AddedTokens::add(AddedToken token, std::string_view pattern) {
  if (token.content.empty() || by_content_.contains(token.content)) return;
  const std::size_t index = tokens_.size();
  by_id_.emplace(token.id, index);
  by_content_.emplace(token.content, index);
  (token.is_normalized ? normalized_ : raw_).insert(pattern, static_cast<std::uint32_t>(index));
  tokens_.push_back(std::move(token));
}

void AddedTokens::make_special(TokenId id) {
  if (const auto at = by_id_.find(id); at != by_id_.end()) tokens_[at->second].is_special = true;
}

const AddedToken* AddedTokens::find(TokenId id) const noexcept {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const noexcept {
  const auto at = by_content_.find(std::string(content));
  return at == by_content_.end() ? nullptr : &tokens_[at->second];
}

std::optional<AddedTokens::Match> AddedTokens::longest(const ByteTrie& trie,
                                                       const Normalized& n,
                                                       std::size_t at) const {
  std::optional<Match> best;
  std::uint32_t node = ByteTrie::kRoot;
  for (std::size_t end = at; end < n.text.size();) {
    node = trie.child(node, static_cast<unsigned char>(n.text[end]));
    if (node == ByteTrie::kNone) break;
    ++end;
    if (trie.value(node) == ByteTrie::kNone) continue;
    const AddedToken& token = tokens_[trie.value(node)];
    if (!token.is_special || n.may_be_special(at, end)) best = Match{end, &token};
  }
  return best;
}

void AddedTokens::split(const ByteTrie& trie, const Normalized& n, std::vector<Part>& out) const {
  const std::string_view text = n.text;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!trie.may_start(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    const auto match = longest(trie, n, at);
    if (!match) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = match->end;
    at = end;  // a match is used up even where a flag then rejects it
    if (match->token->is_single_word && !stands_alone(text, begin, end)) continue;
    if (match->token->strips_left)
      begin = std::max(done, trailing_space_begin(text.substr(0, begin)));
    if (match->token->strips_right) end += leading_space_bytes(text.substr(end));
    if (begin > done) out.push_back({done, begin, std::nullopt});
    out.push_back({begin, end, match->token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), std::nullopt});
}

}  // namespace kvasir::text::tok
