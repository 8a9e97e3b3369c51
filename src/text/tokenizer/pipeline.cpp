#include "text/tokenizer/pipeline.h"

#include <algorithm>

namespace kvasir::text::tok {
namespace {

Normalized slice(const Normalized& n, std::size_t begin, std::size_t end) {
  Normalized out;
  out.text = n.text.substr(begin, end - begin);
  out.all_allowed = n.all_allowed;
  if (!n.allowed.empty()) {
    const auto from = n.allowed.begin();
    out.allowed.assign(from + static_cast<std::ptrdiff_t>(begin),
                       from + static_cast<std::ptrdiff_t>(end));
  }
  out.is_from_start = n.is_from_start && begin == 0;
  return out;
}

}  // namespace

std::string_view Pipeline::piece(TokenId id) const noexcept {
  if (const AddedToken* token = added.find(id))
    return token->spelling.empty() ? token->content : token->spelling;
  return vocab.piece(id);
}

std::optional<TokenId> Pipeline::find(std::string_view text) const noexcept {
  if (const AddedToken* token = added.find(text)) return token->id;
  return vocab.find(text);
}

bool Pipeline::is_special(TokenId id) const noexcept {
  return std::binary_search(special_ids.begin(), special_ids.end(), id);
}

Status Pipeline::normalize(Normalized& n) const {
  for (const auto& normalizer : normalizers) KVASIR_TRY_DO(normalizer->apply(n));
  return {};
}

Status Pipeline::add_token(AddedToken token) {
  if (token.id > kMaxTokenId)
    return invalid("tokenizer: added token id " + std::to_string(token.id) + " is too large");
  if (added.all().size() >= kMaxVocabEntries) return invalid("tokenizer: too many added tokens");
  Normalized pattern;
  pattern.text = token.content;
  if (token.is_normalized) {  // decodes to its normalized form too, as in the reference
    KVASIR_TRY_DO(normalize(pattern));
    token.spelling = pattern.text;
  }
  added.add(std::move(token), pattern.text);
  return {};
}

TokenId Pipeline::next_added_id() const noexcept {
  const std::size_t n_vocab = vocab.count();
  std::size_t next = n_vocab;
  for (const AddedToken& token : added.all())
    next = std::max<std::size_t>(next, std::size_t{token.id} + 1);
  return static_cast<TokenId>(next);
}

void Pipeline::finish_loading() {
  end = vocab.end();
  special_ids.clear();
  for (const AddedToken& token : added.all()) {
    end = std::max<std::size_t>(end, std::size_t{token.id} + 1);
    if (token.is_special) special_ids.push_back(token.id);
  }
  std::sort(special_ids.begin(), special_ids.end());
  special_ids.erase(std::unique(special_ids.begin(), special_ids.end()), special_ids.end());
}

void hide_special_tokens(Pipeline& p) {
  for (const AddedToken& token : p.added.all()) {
    // A token bound to word borders is, elsewhere, an ordinary piece.
    if (!token.is_special || token.is_single_word) continue;
    if (const auto id = p.vocab.find(token.content)) p.vocab.hide_from_text(*id);
  }
}

Result<std::vector<TokenId>> Pipeline::encode(Normalized text) const {
  std::vector<TokenId> out;
  Scratch scratch;
  if (!added.has_raw()) {
    if (!text.text.empty()) KVASIR_TRY_DO(encode_stretch(std::move(text), out, scratch));
    return out;
  }
  std::vector<Part> parts;
  added.split_raw(text, parts);
  for (const Part& part : parts) {
    if (part.token) {
      out.push_back(*part.token);
    } else {
      KVASIR_TRY_DO(encode_stretch(slice(text, part.begin, part.end), out, scratch));
    }
  }
  return out;
}

Status Pipeline::encode_stretch(Normalized n, std::vector<TokenId>& out, Scratch& scratch) const {
  KVASIR_TRY_DO(normalize(n));
  if (n.text.empty()) return {};
  if (!added.has_normalized())
    return encode_plain(std::move(n.text), n.is_from_start, out, scratch);
  std::vector<Part> parts;
  added.split_normalized(n, parts);
  for (const Part& part : parts) {
    if (part.token) {
      out.push_back(*part.token);
    } else {
      const bool is_from_start = n.is_from_start && part.begin == 0;
      KVASIR_TRY_DO(encode_plain(n.text.substr(part.begin, part.end - part.begin), is_from_start,
                                 out, scratch));
    }
  }
  return {};
}

Status Pipeline::encode_plain(std::string text,
                              bool is_from_start,
                              std::vector<TokenId>& out,
                              Scratch& scratch) const {
  PreTokens p;
  p.text = std::move(text);
  p.pieces = {{0, p.text.size()}};
  p.is_from_start = is_from_start;
  for (const auto& pre : pre_tokenizers) KVASIR_TRY_DO(pre->apply(p));
  for (const Range& piece : p.pieces) {
    KVASIR_TRY_DO(model->tokenize(
        std::string_view(p.text).substr(piece.begin, piece.end - piece.begin), out, scratch));
  }
  return {};
}

}  // namespace kvasir::text::tok
