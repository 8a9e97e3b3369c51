#include "text/tokenizer/bpe.h"

#include <bit>

#include "base/utf8.h"
#include "text/tokenizer/merge.h"
#include "text/tokenizer/mix.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {

MergeTable::MergeTable(std::size_t n_merges)
    : slots_(std::bit_ceil(std::max<std::size_t>(16, n_merges * 2))) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = mix64(key) & mask;
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

void MergeTable::set(TokenId left, TokenId right, Entry entry) {
  const std::uint64_t key = std::uint64_t{left} << 32 | right;
  slots_[slot_of(key)] = {key, entry};
}

const MergeTable::Entry* MergeTable::find(TokenId left, TokenId right) const noexcept {
  const Slot& slot = slots_[slot_of(std::uint64_t{left} << 32 | right)];
  return slot.key == kFree ? nullptr : &slot.entry;
}

std::array<TokenId, 256> byte_fallback_tokens(const Vocab& vocab) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::array<TokenId, 256> out;
  for (unsigned b = 0; b < 256; ++b) {
    const std::string name = std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + '>';
    out[b] = vocab.find(name).value_or(0xFFFFFFFF);
  }
  return out;
}

Bpe::Bpe(const Vocab& vocab, BpeOptions options, std::size_t n_merges)
    : vocab_(vocab),
      o_(std::move(options)),
      merges_(n_merges),
      byte_tokens_(byte_fallback_tokens(vocab)),
      borders_(vocab) {
  for (char32_t c = 0; c < kTableEnd; ++c) {
    std::string text;
    append_utf8(text, c);
    char_tokens_[c] = vocab.find_in_text(text).value_or(kNoToken);
  }
  if (!o_.unk_token.empty()) unk_ = vocab.find(o_.unk_token).value_or(kNoToken);
  is_plain_ = o_.continuing_subword_prefix.empty() && o_.end_of_word_suffix.empty();
}

Status Bpe::add_merge(std::string_view left, std::string_view right, std::uint32_t rank) {
  const std::size_t n_prefix = o_.continuing_subword_prefix.size();
  const auto a = vocab_.find(left);
  const auto b = vocab_.find(right);
  joined_ = left;
  joined_ += right.substr(std::min(n_prefix, right.size()));
  const auto whole = vocab_.find(joined_);
  if (!a || !b || !whole) {
    return invalid("tokenizer: merge \"" + std::string(left) + " " + std::string(right) +
                   "\" names a piece that is not in the vocabulary");
  }
  if (!vocab_.is_hidden(*whole)) merges_.set(*a, *b, {rank, *whole});
  return {};
}

TokenId Bpe::char_token(char32_t c, std::string_view text) const noexcept {
  if (c < kTableEnd) return char_tokens_[c];
  return vocab_.find_in_text(text).value_or(kNoToken);
}

bool Bpe::add_bytes(std::string_view text, std::uint32_t begin, Scratch& scratch) const {
  for (const char c : text) {
    if (byte_tokens_[static_cast<unsigned char>(c)] == kNoToken) return false;
  }
  for (const char c : text) {
    scratch.symbols.push_back({-1, -1, byte_tokens_[static_cast<unsigned char>(c)], begin++, 1});
  }
  return true;
}

void Bpe::start_symbols(std::string_view piece, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  std::uint32_t unk_bytes = 0;  // of a pending unk, written before the next known character
  const auto flush_unk = [&] {
    if (unk_bytes > 0) symbols.push_back({-1, -1, unk_, 0, unk_bytes});
    unk_bytes = 0;
  };
  std::string dressed;
  for (std::size_t at = 0; at < piece.size();) {
    const Char c = first_char(piece.substr(at));
    std::string_view text = piece.substr(at, c.n_bytes);
    TokenId id;
    if (is_plain_) {
      id = char_token(c.code_point, text);
    } else {
      dressed = at > 0 ? o_.continuing_subword_prefix : std::string();
      dressed += text;
      if (at + c.n_bytes == piece.size()) dressed += o_.end_of_word_suffix;
      text = dressed;
      id = vocab_.find_in_text(text).value_or(kNoToken);
    }
    const auto begin = static_cast<std::uint32_t>(at);
    const auto n_bytes = static_cast<std::uint32_t>(c.n_bytes);
    at += c.n_bytes;
    if (id != kNoToken) {
      flush_unk();
      symbols.push_back({-1, -1, id, begin, n_bytes});
    } else if (o_.has_byte_fallback && add_bytes(text, begin, scratch)) {
      continue;  // a pending unk stays pending, as in the reference
    } else if (unk_ != kNoToken) {
      if (!o_.fuses_unk) flush_unk();
      unk_bytes += n_bytes;
    }
  }
  flush_unk();
  link_symbols(symbols);
}

Status Bpe::tokenize(std::string_view piece, std::vector<TokenId>& out, Scratch& scratch) const {
  if (o_.ignores_merges) {
    if (const auto whole = vocab_.find_in_text(piece)) {
      out.push_back(*whole);
      return {};
    }
  }
  if (!is_plain_) {
    merge_word(piece, out, scratch);
    return {};
  }
  borders_.for_each_word(piece, [&](std::string_view word) { merge_word(word, out, scratch); });
  return {};
}

void Bpe::merge_word(std::string_view word, std::vector<TokenId>& out, Scratch& scratch) const {
  start_symbols(word, scratch);
  merge_all(scratch,
            [&](const Scratch::Symbol& a, const Scratch::Symbol& b) -> std::optional<Merge> {
              const MergeTable::Entry* entry = merges_.find(a.id, b.id);
              if (entry == nullptr) return std::nullopt;
              return Merge{entry->rank, entry->id};
            });
  for (const Scratch::Symbol& s : scratch.symbols) {
    if (s.n_bytes > 0) out.push_back(s.id);
  }
}

namespace {

Status add_json_merges(const json::Array& merges, Bpe& bpe) {
  std::uint32_t rank = 0;
  for (const json::Value& merge : merges) {
    if (const std::string* line = merge.as_string()) {
      const std::size_t space = line->find(' ');
      if (space == std::string::npos || line->find(' ', space + 1) != std::string::npos) {
        return invalid("tokenizer: merge \"" + *line + "\" is not two pieces");
      }
      KVASIR_TRY_DO(bpe.add_merge(std::string_view(*line).substr(0, space),
                                  std::string_view(*line).substr(space + 1), rank++));
      continue;
    }
    const json::Array* pair = merge.as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string()) {
      return invalid("tokenizer: merge " + std::to_string(rank) + " is not two pieces");
    }
    KVASIR_TRY_DO(bpe.add_merge(*(*pair)[0].as_string(), *(*pair)[1].as_string(), rank++));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> parse_bpe(const json::Value& spec, const Vocab& vocab) {
  BpeOptions o;
  o.unk_token = spec.string_or("unk_token", "");
  o.continuing_subword_prefix = spec.string_or("continuing_subword_prefix", "");
  o.end_of_word_suffix = spec.string_or("end_of_word_suffix", "");
  o.fuses_unk = spec.bool_or("fuse_unk", false);
  o.has_byte_fallback = spec.bool_or("byte_fallback", false);
  o.ignores_merges = spec.bool_or("ignore_merges", false);
  const json::Value* merges = spec.find("merges");
  if (merges == nullptr || !merges->is_array())
    return invalid("tokenizer: a BPE model without merges");
  auto bpe = std::make_unique<Bpe>(vocab, std::move(o), merges->as_array()->size());
  KVASIR_TRY_DO(add_json_merges(*merges->as_array(), *bpe));
  return Result<std::unique_ptr<Model>>(std::move(bpe));
}

}  // namespace kvasir::text::tok
