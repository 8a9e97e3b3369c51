// tokenizer.ggml.* of a GGUF file → Pipeline.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/gguf_pre.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/scored.h"
#include "text/tokenizer/words.h"

namespace kvasir::text::tok {
namespace {

enum TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

class GgufLoader {
 public:
  explicit GgufLoader(const GgufVocab& v) : v_(v), p_(std::make_shared<Pipeline>()) {}

  Result<PipelinePtr> load() {
    KVASIR_TRY_DO(check_sizes());
    set_ids();
    if (v_.model == "bert") {
      KVASIR_TRY_DO(load_bert());
    } else {
      KVASIR_TRY_DO(add_vocab([](std::size_t, const std::string& piece) { return piece; }));
      if (v_.model == "llama") {
        KVASIR_TRY_DO(load_llama());
      } else if (v_.model == "t5") {
        KVASIR_TRY_DO(load_t5());
      } else if (v_.model == "gpt2" || v_.model == "gemma4") {
        KVASIR_TRY_DO(load_gpt2());
      } else {
        return unsupported("GGUF: unknown tokenizer.ggml.model \"" + v_.model + "\"");
      }
    }
    name_specials();
    p_->finish_loading();
    return PipelinePtr(p_);
  }

 private:
  Status check_sizes() const {
    const std::size_t n = v_.tokens.size();
    if (n == 0 || n > kMaxVocabEntries)
      return invalid("GGUF: tokenizer.ggml.tokens has " + std::to_string(n) + " entries");
    if (!v_.scores.empty() && v_.scores.size() != n)
      return invalid("GGUF: tokenizer.ggml.scores is not one a token");
    if (!v_.token_types.empty() && v_.token_types.size() != n) {
      return invalid("GGUF: tokenizer.ggml.token_type is not one a token");
    }
    if (std::any_of(v_.scores.begin(), v_.scores.end(), [](float s) { return std::isnan(s); })) {
      return invalid("GGUF: tokenizer.ggml.scores has a NaN");
    }
    for (const auto& id : {v_.bos, v_.eos, v_.unk, v_.pad, v_.sep, v_.cls, v_.mask}) {
      if (id && *id >= n)
        return invalid("GGUF: special token id " + std::to_string(*id) +
                       " is not in the vocabulary");
    }
    return {};
  }

  std::int32_t type(std::size_t id) const {
    return v_.token_types.empty() ? kNormal : v_.token_types[id];
  }

  // Ids that a model kind has where the file does not say.
  void set_ids() {
    const auto known = [&](const std::optional<TokenId>& given, std::string_view model,
                           TokenId other) {
      if (given || v_.model != model || other >= v_.tokens.size()) return given;
      return std::optional<TokenId>(other);
    };
    p_->bos = known(v_.bos, "llama", 1);
    p_->eos = known(known(v_.eos, "llama", 2), "t5", 1);
    p_->unk = known(known(v_.unk, "llama", 0), "t5", 2);
    p_->pad = known(v_.pad, "t5", 0);
    if (v_.model != "bert") return;
    if (!p_->bos) p_->bos = v_.cls;
    if (!p_->eos) p_->eos = v_.sep;
  }

  template <class Spell>
  Status add_vocab(const Spell& spell) {
    p_->vocab.reserve(v_.tokens.size());
    for (std::size_t id = 0; id < v_.tokens.size(); ++id)
      KVASIR_TRY_DO(p_->vocab.add(spell(id, v_.tokens[id]), id));
    for (std::size_t id = 0; id < v_.tokens.size(); ++id) {
      const std::int32_t kind = type(id);
      const bool is_special = kind == kControl || kind == kUnknown;
      if (!is_special && kind != kUserDefined) continue;
      const std::string content = spell(id, v_.tokens[id]);
      // SentencePiece looks for user-defined pieces where spaces are marked already.
      const bool is_marked = v_.model != "gpt2" && content.find(kSpaceMark) != std::string::npos;
      if (!is_special && is_marked) {
        AddedToken token{.content = content, .id = static_cast<TokenId>(id), .is_normalized = true};
        p_->added.add(std::move(token), content);
        continue;
      }
      KVASIR_TRY_DO(p_->add_token(
          {.content = content, .id = static_cast<TokenId>(id), .is_special = is_special}));
    }
    // Files without types still have control tokens.
    for (const auto& id : {p_->bos, p_->eos, p_->unk, p_->pad, v_.sep, v_.cls, v_.mask}) {
      if (!id) continue;
      if (p_->added.find(*id) == nullptr) {
        KVASIR_TRY_DO(p_->add_token(
            {.content = std::string(p_->vocab.piece(*id)), .id = *id, .is_special = true}));
      }
      p_->added.make_special(*id);
    }
    hide_special_tokens(*p_);
    return {};
  }

  ScoredOptions scored_options() const {
    ScoredOptions o;
    o.unk = p_->unk;
    o.has_byte_fallback = true;  // where the byte tokens are there
    o.is_mergeable.resize(v_.tokens.size());
    for (std::size_t id = 0; id < v_.tokens.size(); ++id) {
      o.is_mergeable[id] = type(id) == kNormal || type(id) == kUserDefined;
    }
    return o;
  }

  Status load_llama() {
    const bool adds_prefix = v_.add_space_prefix.value_or(true);
    KVASIR_TRY(Charsmap charsmap, Charsmap::parse(v_.precompiled_charsmap));
    const SentencePieceRules rules{
        .adds_dummy_prefix = adds_prefix,
        .removes_extra_spaces = v_.remove_extra_whitespaces.value_or(false)};
    p_->normalizers.push_back(make_sentencepiece_normalizer(std::move(charsmap), rules));
    p_->model = std::make_unique<ScoredBpe>(p_->vocab, v_.scores, scored_options());
    p_->decoder = DecoderSpec::sentencepiece(rules.n_stripped());
    wrap(true, false);
    return {};
  }

  Status load_t5() {
    const bool adds_prefix = v_.add_space_prefix.value_or(true);
    KVASIR_TRY(Charsmap charsmap, Charsmap::parse(v_.precompiled_charsmap));
    const SentencePieceRules rules{
        .adds_dummy_prefix = adds_prefix,
        .removes_extra_spaces = v_.remove_extra_whitespaces.value_or(true)};
    p_->normalizers.push_back(make_sentencepiece_normalizer(std::move(charsmap), rules));
    const std::vector<double> scores(v_.scores.begin(), v_.scores.end());
    p_->model = std::make_unique<Unigram>(p_->vocab, scores, scored_options());
    p_->decoder = DecoderSpec::sentencepiece(rules.n_stripped());
    wrap(false, true);
    return {};
  }

  Status load_gpt2() {
    const std::string name = !v_.pre.empty() ? v_.pre : v_.model == "gemma4" ? "gemma4" : "default";
    const GgufPre* pre = find_gguf_pre(name);
    if (pre == nullptr) return unsupported("GGUF: unknown tokenizer.ggml.pre \"" + name + "\"");
    if (pre->has_nfc) p_->normalizers.push_back(make_unicode_form(Form::nfc));
    if (pre->has_plain_pieces) {
      KVASIR_TRY(auto escape, make_replace(" ", std::string(kSpaceMark)));
      p_->normalizers.push_back(std::move(escape));
    }
    for (const std::string_view pattern : pre->patterns) {
      KVASIR_TRY(Regex regex, Regex::compile(pattern));
      p_->pre_tokenizers.push_back(make_split(std::move(regex), Behavior::isolated, false));
    }
    BpeOptions o;
    o.ignores_merges = pre->ignores_merges;
    o.has_byte_fallback = pre->has_plain_pieces;
    if (p_->unk && pre->has_plain_pieces) o.unk_token = p_->vocab.piece(*p_->unk);
    o.fuses_unk = pre->has_plain_pieces;
    if (pre->has_plain_pieces) {
      p_->decoder = DecoderSpec::sentencepiece(0);
    } else {
      p_->pre_tokenizers.push_back(make_byte_level());
      p_->decoder = DecoderSpec::byte_level();
    }
    KVASIR_TRY_DO(add_merges(std::move(o)));
    wrap(pre->adds_bos, false);
    return {};
  }

  Status add_merges(BpeOptions options) {
    auto bpe = std::make_unique<Bpe>(p_->vocab, std::move(options), v_.merges.size());
    std::uint32_t rank = 0;
    for (const std::string& merge : v_.merges) {
      // A piece may itself be, or begin with, a space.
      const std::size_t space = merge.find(' ', 1);
      if (merge.size() < 3 || space == std::string::npos)
        return invalid("GGUF: merge " + std::to_string(rank) + " is not two pieces");
      const std::string_view line = merge;
      KVASIR_TRY_DO(bpe->add_merge(line.substr(0, space), line.substr(space + 1), rank++));
    }
    p_->model = std::move(bpe);
    return {};
  }

  Status load_bert() {
    // Converted files mark the pieces that begin a word, where the original marks those that
    // continue one.
    const auto is_marked = [](const std::string& piece) { return piece.starts_with(kSpaceMark); };
    const bool marks_starts = std::any_of(v_.tokens.begin(), v_.tokens.end(), is_marked);
    KVASIR_TRY_DO(add_vocab([&](std::size_t id, const std::string& piece) {
      if (!marks_starts || type(id) != kNormal || is_bracketed(piece)) return piece;
      return is_marked(piece) ? piece.substr(kSpaceMark.size()) : "##" + piece;
    }));
    p_->normalizers.push_back(make_bert_normalizer(/*is_lowercase=*/true, /*strips_accents=*/true));
    p_->pre_tokenizers.push_back(make_bert_pre_tokenizer());
    WordPieceOptions o;
    if (p_->unk) o.unk_token = p_->vocab.piece(*p_->unk);
    p_->model = std::make_unique<WordPiece>(p_->vocab, std::move(o));
    p_->decoder = DecoderSpec::word_piece();
    wrap(true, true);
    return {};
  }

  static bool is_bracketed(const std::string& piece) {
    return piece.size() > 2 && piece.front() == '[' && piece.back() == ']';
  }

  void wrap(bool adds_bos, bool adds_eos) {
    if (p_->bos) p_->post.set_bos(*p_->bos, v_.add_bos.value_or(adds_bos));
    if (p_->eos) p_->post.set_eos(*p_->eos, v_.add_eos.value_or(adds_eos));
  }

  void name_specials() {
    const auto name = [&](const char* key, const std::optional<TokenId>& id) {
      if (id) p_->named_special_tokens.emplace_back(key, p_->piece(*id));
    };
    name("bos_token", p_->bos);
    name("eos_token", p_->eos);
    name("unk_token", p_->unk);
    name("pad_token", p_->pad);
    name("sep_token", v_.sep);
    name("cls_token", v_.cls);
    name("mask_token", v_.mask);
  }

  const GgufVocab& v_;
  std::shared_ptr<Pipeline> p_;
};

}  // namespace

Result<PipelinePtr> load_gguf(const GgufVocab& vocab) { return GgufLoader(vocab).load(); }

}  // namespace kvasir::text::tok
