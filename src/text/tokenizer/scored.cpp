#include "text/tokenizer/scored.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/merge.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr double kUnkPenalty = 10.0;
constexpr TokenId kNoToken = 0xFFFFFFFF;

// Higher scores first, as an ascending integer.
std::uint64_t rank_of(float score) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0f : score);
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

bool append_bytes(const std::array<TokenId, 256>& byte_tokens,
                  std::string_view text,
                  std::vector<TokenId>& out) {
  const auto is_absent = [&](char c) {
    return byte_tokens[static_cast<unsigned char>(c)] == kNoToken;
  };
  if (std::any_of(text.begin(), text.end(), is_absent)) return false;
  for (const char c : text) out.push_back(byte_tokens[static_cast<unsigned char>(c)]);
  return true;
}

bool may_merge(const ScoredOptions& o, TokenId id) noexcept {
  return o.is_mergeable.empty() || (id < o.is_mergeable.size() && o.is_mergeable[id]);
}

}  // namespace

ScoredBpe::ScoredBpe(const Vocab& vocab, std::vector<float> scores, ScoredOptions options)
    : vocab_(vocab),
      scores_(std::move(scores)),
      o_(std::move(options)),
      byte_tokens_(byte_fallback_tokens(vocab)),
      borders_(vocab) {
  scores_.resize(vocab.end());
}

std::optional<TokenId> ScoredBpe::mergeable(std::string_view text) const noexcept {
  if (text.size() > vocab_.longest_piece_bytes()) return std::nullopt;
  const auto id = vocab_.find_in_text(text);
  if (!id || !may_merge(o_, *id)) return std::nullopt;
  return id;
}

void ScoredBpe::merge_word(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (std::size_t at = 0; at < word.size();) {
    const auto n_bytes = first_char(word.substr(at)).n_bytes;
    symbols.push_back(
        {-1, -1, kNoToken, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(n_bytes)});
    at += n_bytes;
  }
  link_symbols(symbols);
  merge_all(scratch,
            [&](const Scratch::Symbol& a, const Scratch::Symbol& b) -> std::optional<Merge> {
              const auto id = mergeable(word.substr(a.begin, std::size_t{a.n_bytes} + b.n_bytes));
              if (!id) return std::nullopt;
              return Merge{rank_of(scores_[*id]), *id};
            });
}

Status ScoredBpe::tokenize(std::string_view piece,
                           std::vector<TokenId>& out,
                           Scratch& scratch) const {
  bool is_after_unk = false;
  Status status;
  borders_.for_each_word(piece, [&](std::string_view word) {
    merge_word(word, scratch);
    for (const Scratch::Symbol& s : scratch.symbols) {
      if (s.n_bytes > 0 && status)
        status = emit(word.substr(s.begin, s.n_bytes), is_after_unk, out);
    }
  });
  return status;
}

Status ScoredBpe::emit(std::string_view text, bool& is_after_unk, std::vector<TokenId>& out) const {
  const bool was_after_unk = is_after_unk;
  is_after_unk = false;
  if (const auto id = mergeable(text)) {
    out.push_back(*id);
    return {};
  }
  if (o_.has_byte_fallback && append_bytes(byte_tokens_, text, out)) return {};
  if (!o_.unk) return invalid("this text has characters that the tokenizer has no token for");
  is_after_unk = true;
  if (!was_after_unk) out.push_back(*o_.unk);
  return {};
}

Unigram::Unigram(const Vocab& vocab, std::vector<double> scores, ScoredOptions options)
    : vocab_(vocab),
      scores_(std::move(scores)),
      o_(std::move(options)),
      byte_tokens_(byte_fallback_tokens(vocab)) {
  scores_.resize(vocab.end());
  double least = INFINITY;
  for (TokenId id = 0; id < vocab.end(); ++id) {
    if (!vocab.has(id)) continue;
    if (may_merge(o_, id) && !vocab.is_hidden(id)) trie_.insert(vocab.piece(id), id);
    if (may_merge(o_, id) || o_.is_mergeable.empty()) least = std::min(least, scores_[id]);
  }
  unk_score_ = (std::isfinite(least) ? least : 0.0) - kUnkPenalty;
}

void Unigram::forward(std::string_view piece, std::vector<Scratch::Node>& nodes) const {
  nodes.assign(piece.size() + 1, {});
  const auto reach = [&](std::size_t to, std::size_t from, double score, TokenId id) {
    Scratch::Node& node = nodes[to];
    if (node.is_reached && !(score > node.score)) return;
    node = {score, static_cast<std::uint32_t>(from), id, true};
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t n_char = first_char(piece.substr(at)).n_bytes;
    const double here = nodes[at].score;
    bool has_single = false;
    std::uint32_t state = ByteTrie::kRoot;
    for (std::size_t end = at; end < piece.size();) {
      state = trie_.child(state, static_cast<unsigned char>(piece[end]));
      if (state == ByteTrie::kNone) break;
      ++end;
      const std::uint32_t id = trie_.value(state);
      if (id == ByteTrie::kNone) continue;
      reach(end, at, here + scores_[id], id);
      if (end - at == n_char) has_single = true;
    }
    if (!has_single) reach(at + n_char, at, here + unk_score_, o_.unk.value_or(kNoToken));
    at += n_char;
  }
}

Status Unigram::tokenize(std::string_view piece,
                         std::vector<TokenId>& out,
                         Scratch& scratch) const {
  auto& nodes = scratch.nodes;
  forward(piece, nodes);
  // Walk back, turning the chain round, so that it can be read forwards.
  std::vector<std::uint32_t>& ends = scratch.ends;
  ends.clear();
  for (std::uint32_t at = static_cast<std::uint32_t>(piece.size()); at > 0; at = nodes[at].from)
    ends.push_back(at);
  std::size_t unk_begin = 0;
  bool is_unk_run = false;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Scratch::Node& node = nodes[*end];
    const bool is_unk = node.id == o_.unk.value_or(kNoToken);
    if (is_unk && !is_unk_run) unk_begin = node.from;
    if (!is_unk) {
      if (is_unk_run) KVASIR_TRY_DO(emit(piece.substr(unk_begin, node.from - unk_begin), out));
      out.push_back(node.id);
    }
    is_unk_run = is_unk;
  }
  if (is_unk_run) KVASIR_TRY_DO(emit(piece.substr(unk_begin), out));
  return {};
}

// A run of unknown characters, as one.
Status Unigram::emit(std::string_view text, std::vector<TokenId>& out) const {
  if (const auto id = vocab_.find_in_text(text); id && may_merge(o_, *id)) {
    out.push_back(*id);
    return {};
  }
  if (o_.has_byte_fallback && append_bytes(byte_tokens_, text, out)) return {};
  if (!o_.unk) return invalid("this text has characters that the tokenizer has no token for");
  out.push_back(*o_.unk);
  return {};
}

Result<std::unique_ptr<Model>> parse_unigram(const json::Value& spec, const Vocab& vocab) {
  ScoredOptions o;
  o.has_byte_fallback = spec.bool_or("byte_fallback", false);
  if (const json::Value* unk = spec.find("unk_id"); unk != nullptr && unk->is_int()) {
    const std::int64_t id = *unk->as_int();
    if (id < 0 || !vocab.has(static_cast<TokenId>(std::min<std::int64_t>(id, kNoToken)))) {
      return invalid("tokenizer: unk_id is not in the vocabulary");
    }
    o.unk = static_cast<TokenId>(id);
  }
  std::vector<double> scores(vocab.end());
  const json::Array& pieces =
      *spec.find("vocab")->as_array();  // checked when the vocabulary was read
  for (std::size_t id = 0; id < pieces.size(); ++id)
    scores[id] = *(*pieces[id].as_array())[1].as_number();
  return Result<std::unique_ptr<Model>>(
      std::make_unique<Unigram>(vocab, std::move(scores), std::move(o)));
}

}  // namespace kvasir::text::tok
