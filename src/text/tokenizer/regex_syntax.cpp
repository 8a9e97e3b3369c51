#include "text/tokenizer/regex_syntax.h"

#include <algorithm>

#include "text/tokenizer/regex_class.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr int kMaxTameRepeats = 2;

class Translator {
 public:
  Translator(std::string_view in, const ClassEvaluator& evaluate) : in_(in), evaluate_(evaluate) {}

  Result<PcrePattern> run() {
    while (at_ < in_.size()) KVASIR_TRY_DO(step());
    return PcrePattern{std::move(out_), is_tame_};
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }

  Status step() {
    switch (in_[at_]) {
      case '\\':
        return escape();
      case '[': {
        start_atom(false);
        KVASIR_TRY(const std::string set, read_class(in_, at_, evaluate_));
        out_ += set;
        return {};
      }
      case '(':
        return open_group();
      case ')':
        if (!groups_.empty()) {
          atom_begin_ = groups_.back();
          groups_.pop_back();
        }
        atom_is_group_ = true;
        out_ += in_[at_++];
        return {};
      case '|':
        if (groups_.empty()) n_repeats_ = 0;
        out_ += in_[at_++];
        return {};
      case '*':
      case '+':
      case '?':
      case '{':
        return repeat();
      default: {
        start_atom(false);
        const std::size_t n = first_char(in_.substr(at_)).n_bytes;
        out_ += in_.substr(at_, n);
        at_ += n;
        return {};
      }
    }
  }

  void start_atom(bool is_group) {
    atom_begin_ = out_.size();
    atom_is_group_ = is_group;
  }

  Status escape() {
    start_atom(false);
    ShorthandSet set;
    if (read_shorthand(in_, at_, set)) {
      if (set.items == kWordItems) set.items += kWordItemsAlone;
      out_ += (set.is_negated ? "[^" : "[") + set.items + "]";
      return {};
    }
    if (at_ + 1 >= in_.size()) return invalid("pattern: a backslash at the end");
    const char c = in_[at_ + 1];
    const std::string word = "[" + std::string(kWordItems) + std::string(kWordItemsAlone) + "]";
    if (c == 'b' || c == 'B') {  // a border by this library's idea of a word
      const std::string inside =
          "(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + ")";
      const std::string border =
          "(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + ")";
      out_ += "(?:" + (c == 'b' ? border : inside) + ")";
      at_ += 2;
      return {};
    }
    if (c == 'v') {
      out_ += "\\x0B";
      at_ += 2;
      return {};
    }
    if (c == 'u' && at_ + 6 <= in_.size()) {
      out_ += "\\x{" + std::string(in_.substr(at_ + 2, 4)) + "}";
      at_ += 6;
      return {};
    }
    if ((c >= '1' && c <= '9') || c == 'k' || c == 'g') is_tame_ = false;
    const std::size_t n = 1 + first_char(in_.substr(at_ + 1)).n_bytes;
    out_ += in_.substr(at_, n);
    at_ += n;
    return {};
  }

  Status open_group() {
    groups_.push_back(out_.size());
    out_ += '(';
    ++at_;
    if (peek() != '?') return {};
    out_ += '?';
    ++at_;
    if (peek() == '#') return invalid("pattern: comments are not supported");
    if (peek() == '<' ||
        peek() == '\'') {  // lookbehind or a name: nothing in it may be read as a quantifier
      const std::size_t end = in_.find_first_of("=!>'", at_ + 1);
      const std::size_t n = end == std::string_view::npos ? in_.size() - at_ : end + 1 - at_;
      out_ += in_.substr(at_, n);
      at_ += n;
      return {};
    }
    // Flags: Ruby's m is "dot matches newline".
    while (at_ < in_.size() && in_[at_] != ':' && in_[at_] != ')') {
      const char c = in_[at_];
      if (c == '=' || c == '!' || c == '>') {
        out_ += c;
        ++at_;
        return {};
      }
      if (c != 'i' && c != 'm' && c != 'x' && c != '-')
        return invalid("pattern: unknown group option");
      out_ += c == 'm' ? 's' : c;
      ++at_;
    }
    if (peek() == ':') out_ += in_[at_++];
    return {};
  }

  // Length of "{n}", "{n,}", "{n,m}" or "{,m}" at at_, 0 when the brace is a literal.
  std::size_t interval_bytes() const {
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return 0;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    const bool is_interval = !body.empty() && body != "," &&
                             std::all_of(body.begin(), body.end(),
                                         [](char c) { return (c >= '0' && c <= '9') || c == ','; });
    return is_interval ? end + 1 - at_ : 0;
  }

  Status repeat() {
    const bool is_brace = in_[at_] == '{';
    const std::size_t n = is_brace ? interval_bytes() : 1;
    if (n == 0) {
      start_atom(false);
      out_ += "\\{";
      ++at_;
      return {};
    }
    const std::string_view quantifier = in_.substr(at_, n);
    const bool is_unbounded =
        is_brace ? quantifier.find(",}") != std::string_view::npos : quantifier != "?";
    if (is_unbounded && ++n_repeats_ > kMaxTameRepeats) is_tame_ = false;
    if (atom_is_group_ && quantifier != "?") is_tame_ = false;
    if (is_brace && peek(1) == ',') {
      out_ += "{0" + std::string(quantifier.substr(1));
    } else {
      out_ += quantifier;
    }
    at_ += n;
    if (is_brace && peek() == '+') {  // in Ruby a repeat of the repeat, in PCRE2 possessive
      out_.insert(atom_begin_, "(?:");
      out_ += ")+";
      is_tame_ = false;
      ++at_;
    } else if (peek() == '?' || peek() == '+') {
      out_ += in_[at_++];
    }
    return {};
  }

  std::string_view in_;
  const ClassEvaluator& evaluate_;
  std::string out_;
  std::size_t at_ = 0;
  std::vector<std::size_t> groups_;  // where each open group starts in out_
  std::size_t atom_begin_ = 0;
  bool atom_is_group_ = false;
  bool is_tame_ = true;
  int n_repeats_ = 0;  // unbounded, in this alternative
};

}  // namespace

Result<PcrePattern> to_pcre(std::string_view oniguruma, const ClassEvaluator& evaluate) {
  return Translator(oniguruma, evaluate).run();
}

}  // namespace kvasir::text::tok
