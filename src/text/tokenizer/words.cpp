#include "text/tokenizer/words.h"

#include <algorithm>

namespace kvasir::text::tok {
namespace {

class WordLevel final : public Model {
 public:
  WordLevel(const Vocab& vocab, const std::string& unk_token)
      : vocab_(vocab), unk_(vocab.find(unk_token)) {}

  Status tokenize(std::string_view piece, std::vector<TokenId>& out, Scratch&) const override {
    const auto id = vocab_.find_in_text(piece);
    if (!id && !unk_) return invalid("this text has words that the tokenizer has no token for");
    out.push_back(id ? *id : *unk_);
    return {};
  }

 private:
  const Vocab& vocab_;
  std::optional<TokenId> unk_;
};

}  // namespace

WordPiece::WordPiece(const Vocab& vocab, WordPieceOptions options)
    : o_(std::move(options)), unk_(vocab.find(o_.unk_token)) {
  for (TokenId id = 0; id < vocab.end(); ++id) {
    if (!vocab.has(id) || vocab.is_hidden(id)) continue;
    const std::string_view piece = vocab.piece(id);
    initial_.insert(piece, id);
    if (piece.starts_with(o_.prefix)) continuing_.insert(piece.substr(o_.prefix.size()), id);
  }
}

Status WordPiece::unknown(std::vector<TokenId>& out) const {
  if (!unk_) return invalid("this text has words that the tokenizer has no token for");
  out.push_back(*unk_);
  return {};
}

Status WordPiece::tokenize(std::string_view piece, std::vector<TokenId>& out, Scratch&) const {
  const auto starts_char = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto n_chars =
      static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), starts_char));
  if (n_chars > o_.max_chars) return unknown(out);
  const std::size_t mark = out.size();
  for (std::size_t at = 0; at < piece.size();) {
    const ByteTrie& trie = at == 0 ? initial_ : continuing_;
    std::uint32_t state = ByteTrie::kRoot;
    std::uint32_t best = ByteTrie::kNone;
    std::size_t best_end = at;
    for (std::size_t end = at; end < piece.size();) {
      state = trie.child(state, static_cast<unsigned char>(piece[end]));
      if (state == ByteTrie::kNone) break;
      ++end;
      if (trie.value(state) == ByteTrie::kNone) continue;
      best = trie.value(state);
      best_end = end;
    }
    if (best == ByteTrie::kNone) {
      out.resize(mark);
      return unknown(out);
    }
    out.push_back(best);
    at = best_end;
  }
  return {};
}

Result<std::unique_ptr<Model>> parse_word_piece(const json::Value& spec, const Vocab& vocab) {
  WordPieceOptions o;
  o.unk_token = spec.string_or("unk_token", "[UNK]");
  o.prefix = spec.string_or("continuing_subword_prefix", "##");
  const std::int64_t max_chars = spec.int_or("max_input_chars_per_word", 100);
  if (max_chars < 0) return invalid("tokenizer: max_input_chars_per_word is negative");
  o.max_chars = static_cast<std::size_t>(max_chars);
  return Result<std::unique_ptr<Model>>(std::make_unique<WordPiece>(vocab, std::move(o)));
}

Result<std::unique_ptr<Model>> parse_word_level(const json::Value& spec, const Vocab& vocab) {
  return Result<std::unique_ptr<Model>>(
      std::make_unique<WordLevel>(vocab, spec.string_or("unk_token", "[UNK]")));
}

}  // namespace kvasir::text::tok
