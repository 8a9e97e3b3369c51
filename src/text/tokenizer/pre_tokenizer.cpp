#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Parsed = Result<std::unique_ptr<PreTokenizer>>;

class Split final : public PreTokenizer {
 public:
  Split(Regex pattern, Behavior behavior, bool is_inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), is_inverted_(is_inverted) {}

  Status apply(PreTokens& p) const override {
    return split_pieces(p, behavior_, is_inverted_,
                        [&](std::string_view text, std::vector<Range>& out) {
                          return pattern_.find_all(text, out);
                        });
  }

 private:
  Regex pattern_;
  Behavior behavior_;
  bool is_inverted_;
};

// Splits on characters of a class; each is a match of its own.
class CharSplit final : public PreTokenizer {
 public:
  using Predicate = bool (*)(char32_t) noexcept;
  CharSplit(Predicate is_match, Behavior behavior) : is_match_(is_match), behavior_(behavior) {}

  Status apply(PreTokens& p) const override {
    return split_pieces(p, behavior_, false,
                        [&](std::string_view text, std::vector<Range>& out) -> Status {
                          for (std::size_t at = 0; at < text.size();) {
                            const Char c = first_char(text.substr(at));
                            if (is_match_(c.code_point)) out.push_back({at, at + c.n_bytes});
                            at += c.n_bytes;
                          }
                          return {};
                        });
  }

 private:
  Predicate is_match_;
  Behavior behavior_;
};

// \w+|[^\w\s]+ : runs of word characters and runs of the rest; white space goes.
class Whitespace final : public PreTokenizer {
 public:
  Status apply(PreTokens& p) const override {
    return split_pieces(p, Behavior::removed, true,
                        [](std::string_view text, std::vector<Range>& out) -> Status {
                          int last = kSpace;
                          for (std::size_t at = 0; at < text.size();) {
                            const Char c = first_char(text.substr(at));
                            const int kind = is_whitespace(c.code_point) ? kSpace
                                             : is_word(c.code_point)     ? kWord
                                                                         : kOther;
                            if (kind != kSpace && kind == last) out.back().end += c.n_bytes;
                            if (kind != kSpace && kind != last) out.push_back({at, at + c.n_bytes});
                            last = kind;
                            at += c.n_bytes;
                          }
                          return {};
                        });
  }

 private:
  enum : int { kSpace, kWord, kOther };
};

// Pieces of a fixed number of characters.
class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t n_chars) : n_chars_(n_chars) {}

  Status apply(PreTokens& p) const override {
    return split_pieces(p, Behavior::isolated, false,
                        [&](std::string_view text, std::vector<Range>& out) -> Status {
                          std::size_t n = 0;
                          for (std::size_t at = 0; at < text.size();) {
                            if (n++ % n_chars_ == 0) out.push_back({at, at});
                            at += first_char(text.substr(at)).n_bytes;
                            out.back().end = at;
                          }
                          return {};
                        });
  }

 private:
  std::size_t n_chars_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool adds_prefix_space, std::unique_ptr<PreTokenizer> split)
      : adds_prefix_space_(adds_prefix_space), split_(std::move(split)) {}

  Status apply(PreTokens& p) const override {
    if (adds_prefix_space_) add_prefix_spaces(p);
    if (split_) KVASIR_TRY_DO(split_->apply(p));
    std::string text;
    text.reserve(p.text.size() * 2);
    for (Range& piece : p.pieces) {
      const std::size_t begin = text.size();
      append_byte_level(text,
                        std::string_view(p.text).substr(piece.begin, piece.end - piece.begin));
      piece = {begin, text.size()};
    }
    p.text = std::move(text);
    return {};
  }

 private:
  static void add_prefix_spaces(PreTokens& p) {
    std::string text;
    for (Range& piece : p.pieces) {
      const std::size_t begin = text.size();
      const std::string_view old =
          std::string_view(p.text).substr(piece.begin, piece.end - piece.begin);
      if (old[0] != ' ') text += ' ';
      text += old;
      piece = {begin, text.size()};
    }
    p.text = std::move(text);
  }

  bool adds_prefix_space_;
  std::unique_ptr<PreTokenizer> split_;  // null: pieces stay whole
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend : std::uint8_t { always, first, never };
  Metaspace(std::string mark, Prepend prepend, bool splits, Regex mark_pattern)
      : mark_(std::move(mark)),
        prepend_(prepend),
        splits_(splits),
        pattern_(std::move(mark_pattern)) {}

  Status apply(PreTokens& p) const override {
    std::string text;
    text.reserve(p.text.size() + p.text.size() / 2);
    for (std::size_t i = 0; i < p.pieces.size(); ++i) {
      const std::string_view old =
          std::string_view(p.text).substr(p.pieces[i].begin, p.pieces[i].end - p.pieces[i].begin);
      const std::size_t begin = text.size();
      const bool is_marked = old[0] == ' ' || old.starts_with(mark_);
      const bool is_wanted =
          prepend_ == Prepend::always || (prepend_ == Prepend::first && i == 0 && p.is_from_start);
      if (is_wanted && !is_marked) text += mark_;
      for (const char c : old) {
        if (c == ' ') {
          text += mark_;
        } else {
          text += c;
        }
      }
      p.pieces[i] = {begin, text.size()};
    }
    p.text = std::move(text);
    if (!splits_) return {};
    return split_pieces(p, Behavior::merged_with_next, false,
                        [&](std::string_view piece, std::vector<Range>& out) {
                          return pattern_.find_all(piece, out);
                        });
  }

 private:
  std::string mark_;
  Prepend prepend_;
  bool splits_;
  Regex pattern_;
};

Result<Behavior> parse_behavior(const json::Value& spec, std::string_view other) {
  const std::string name = spec.string_or("behavior", other);
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  return unsupported("tokenizer: unknown split behavior \"" + name + "\"");
}

Parsed parse_split(const json::Value& spec) {
  KVASIR_TRY(Regex pattern, parse_pattern(spec));
  KVASIR_TRY(const Behavior behavior, parse_behavior(spec, ""));
  return make_split(std::move(pattern), behavior, spec.bool_or("invert", false));
}

Parsed parse_byte_level(const json::Value& spec) {
  std::unique_ptr<PreTokenizer> split;
  if (spec.bool_or("use_regex", true)) {
    KVASIR_TRY(Regex pattern, Regex::compile(kGpt2Pattern));
    split = make_split(std::move(pattern), Behavior::isolated, false);
  }
  return Parsed(
      std::make_unique<ByteLevel>(spec.bool_or("add_prefix_space", true), std::move(split)));
}

Parsed parse_metaspace(const json::Value& spec) {
  KVASIR_TRY(std::string mark, one_character(spec, "replacement", "\xE2\x96\x81"));
  // Files written before prepend_scheme existed have a boolean.
  const bool is_old_never =
      !spec.bool_or("add_prefix_space", true) && spec.find("prepend_scheme") == nullptr;
  const std::string scheme = spec.string_or("prepend_scheme", is_old_never ? "never" : "always");
  Metaspace::Prepend prepend;
  if (scheme == "always") {
    prepend = Metaspace::Prepend::always;
  } else if (scheme == "first") {
    prepend = Metaspace::Prepend::first;
  } else if (scheme == "never") {
    prepend = Metaspace::Prepend::never;
  } else {
    return unsupported("tokenizer: unknown prepend_scheme \"" + scheme + "\"");
  }
  KVASIR_TRY(Regex pattern, Regex::literal(mark));
  return Parsed(
      std::make_unique<Metaspace>(mark, prepend, spec.bool_or("split", true), std::move(pattern)));
}

Parsed char_split(CharSplit::Predicate is_match, Behavior behavior) {
  return Parsed(std::make_unique<CharSplit>(is_match, behavior));
}

Parsed parse_one(const json::Value& spec, const std::string& type) {
  if (type == "Split") return parse_split(spec);
  if (type == "ByteLevel") return parse_byte_level(spec);
  if (type == "Metaspace") return parse_metaspace(spec);
  if (type == "Whitespace") return Parsed(std::make_unique<Whitespace>());
  if (type == "WhitespaceSplit") return char_split(is_whitespace, Behavior::removed);
  if (type == "Digits") {
    return char_split(is_numeric, spec.bool_or("individual_digits", false) ? Behavior::isolated
                                                                           : Behavior::contiguous);
  }
  if (type == "Punctuation") {
    KVASIR_TRY(const Behavior behavior, parse_behavior(spec, "Isolated"));
    return char_split(is_punctuation, behavior);
  }
  if (type == "CharDelimiterSplit") {
    KVASIR_TRY(const std::string delimiter, one_character(spec, "delimiter", ""));
    KVASIR_TRY(Regex pattern, Regex::literal(delimiter));
    return make_split(std::move(pattern), Behavior::removed, false);
  }
  if (type == "FixedLength") {
    const std::int64_t n_chars = spec.int_or("length", 5);
    if (n_chars < 1) return invalid("tokenizer: FixedLength of less than one character");
    return Parsed(std::make_unique<FixedLength>(static_cast<std::size_t>(n_chars)));
  }
  return unsupported("tokenizer: unknown pre_tokenizer type \"" + type + "\"");
}

class BertPreTokenizer final : public PreTokenizer {
 public:
  Status apply(PreTokens& p) const override {
    KVASIR_TRY_DO(spaces_.apply(p));
    return punctuation_.apply(p);
  }

 private:
  CharSplit spaces_{is_whitespace, Behavior::removed};
  CharSplit punctuation_{is_punctuation, Behavior::isolated};
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(Regex pattern, Behavior behavior, bool is_inverted) {
  return std::make_unique<Split>(std::move(pattern), behavior, is_inverted);
}

std::unique_ptr<PreTokenizer> make_byte_level() {
  return std::make_unique<ByteLevel>(false, nullptr);
}

std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer() {
  return std::make_unique<BertPreTokenizer>();
}

Result<std::vector<std::unique_ptr<PreTokenizer>>> parse_pre_tokenizers(const json::Value& spec) {
  std::vector<std::unique_ptr<PreTokenizer>> out;
  KVASIR_TRY_DO(for_each_step(spec, "pretokenizers",
                              [&](const json::Value& step, const std::string& type) -> Status {
                                if (type == "BertPreTokenizer") {
                                  out.push_back(make_bert_pre_tokenizer());
                                  return {};
                                }
                                KVASIR_TRY(auto one, parse_one(step, type));
                                out.push_back(std::move(one));
                                return {};
                              }));
  return out;
}

}  // namespace kvasir::text::tok
