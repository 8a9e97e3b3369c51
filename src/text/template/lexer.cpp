#include "text/template/lexer.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/template/unescape.h"
#include "text/template/unicode.h"

namespace kvasir::text::tmpl {

namespace {

constexpr std::array<std::string_view, 27> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!"};

std::size_t space_end(std::string_view s, std::size_t at) {
  while (at < s.size()) {
    const DecodedChar c = decode_utf8(s.substr(at));
    if (!is_space(c.code_point)) break;
    at += c.n_bytes;
  }
  return at;
}

std::size_t trailing_space_begin(std::string_view s) {
  std::size_t keep = 0;
  for (std::size_t at = 0; at < s.size();) {
    const DecodedChar c = decode_utf8(s.substr(at));
    at += c.n_bytes;
    if (!is_space(c.code_point)) keep = at;
  }
  return keep;
}

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < s_.size()) KVASIR_TRY_DO(root());
    push(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
  }
  void advance_to(std::size_t to) {
    line_ +=
        static_cast<std::uint32_t>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(at_),
                                              s_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  bool starts(std::size_t at, std::string_view what) const {
    return s_.substr(std::min(at, s_.size())).starts_with(what);
  }

  std::size_t find_tag() const {
    for (std::size_t at = s_.find('{', at_); at != s_.npos; at = s_.find('{', at + 1)) {
      if (at + 1 < s_.size() && (s_[at + 1] == '{' || s_[at + 1] == '%' || s_[at + 1] == '#')) {
        return at;
      }
    }
    return s_.npos;
  }

  Status root() {
    const std::size_t tag = find_tag();
    if (tag == s_.npos) {
      push(TokenKind::data, s_.substr(at_));
      advance_to(s_.size());
      return {};
    }
    const char kind = s_[tag + 1];
    std::size_t after = tag + 2;
    const char sign =
        after < s_.size() && (s_[after] == '-' || s_[after] == '+') ? s_[after] : '\0';
    if (sign != '\0') ++after;
    emit_data(tag, sign, kind == '{');
    advance_to(after);
    if (kind == '#') return comment();
    if (kind == '{') return tag_body(TokenKind::variable_begin);
    if (const std::size_t raw = raw_begin_end(after); raw != 0) {
      advance_to(raw);
      return raw_block();
    }
    return tag_body(TokenKind::block_begin);
  }

  // The text before a tag, with what the tag's marker or lstrip_blocks takes away.
  void emit_data(std::size_t end, char sign, bool is_variable) {
    std::string_view text = s_.substr(at_, end - at_);
    if (sign == '-') {
      text = text.substr(0, trailing_space_begin(text));
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == text.npos ? 0 : newline + 1;
      const bool at_line_start = line_begin > 0 || line_starting_;
      if (at_line_start && space_end(text, line_begin) == text.size()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) push(TokenKind::data, text);
    advance_to(end);
  }

  // After a closing tag: `-` takes all white space, a plain block end one newline.
  void close(std::size_t end, bool strips, bool is_block) {
    if (strips) {
      end = space_end(s_, end);
    } else if (is_block && end < s_.size() && s_[end] == '\n') {
      ++end;
    }
    line_starting_ = s_[end - 1] == '\n';
    advance_to(end);
  }

  Status comment() {
    const std::size_t close_at = s_.find("#}", at_);
    if (close_at == s_.npos) return syntax_error("Missing end of comment tag", line_);
    const char before = close_at > at_ ? s_[close_at - 1] : '\0';
    close(close_at + 2, before == '-', before != '+');
    return {};
  }

  // Position behind `raw %}` when one starts at `at` (just behind the block's begin), else 0.
  std::size_t raw_begin_end(std::size_t at) const {
    at = space_end(s_, at);
    if (!starts(at, "raw")) return 0;
    at = space_end(s_, at + 3);
    if (starts(at, "%}")) return at + 2;
    return starts(at, "-%}") ? space_end(s_, at + 3) : 0;
  }

  Status raw_block() {
    line_starting_ = s_[at_ - 1] == '\n';
    for (std::size_t tag = s_.find("{%", at_); tag != s_.npos; tag = s_.find("{%", tag + 1)) {
      std::size_t at = tag + 2;
      const char sign = at < s_.size() && (s_[at] == '-' || s_[at] == '+') ? s_[at] : '\0';
      if (sign != '\0') ++at;
      at = space_end(s_, at);
      if (!starts(at, "endraw")) continue;
      at = space_end(s_, at + 6);
      const bool strips = starts(at, "-%}");
      const bool keeps = starts(at, "+%}");
      if (strips || keeps) ++at;
      if (!starts(at, "%}")) continue;
      emit_data(tag, sign, /*is_variable=*/false);
      close(at + 2, strips, !keeps);
      return {};
    }
    return syntax_error("Missing end of raw directive", line_);
  }

  // Position behind the tag's end at at_, 0 when there is none; sets how it closes.
  bool try_close(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    if (starts(at_, end)) {
      finish_tag(at_ + 2, false, is_block, is_block);
      return true;
    }
    if (starts(at_, "-") && starts(at_ + 1, end)) {
      finish_tag(at_ + 3, true, is_block, is_block);
      return true;
    }
    if (is_block && starts(at_, "+%}")) {
      finish_tag(at_ + 3, false, is_block, false);
      return true;
    }
    return false;
  }
  void finish_tag(std::size_t end, bool strips, bool is_block, bool trims_newline) {
    push(is_block ? TokenKind::block_end : TokenKind::variable_end, {});
    close(end, strips, trims_newline);
  }

  Status tag_body(TokenKind begin) {
    push(begin, {});
    const bool is_block = begin == TokenKind::block_begin;
    brackets_.clear();
    while (at_ < s_.size()) {
      if (brackets_.empty() && try_close(is_block)) return {};
      KVASIR_TRY_DO(tag_token());
    }
    return {};  // the parser reports the missing end
  }

  Status tag_token() {
    const std::size_t space = space_end(s_, at_);
    if (space > at_) {
      advance_to(space);
      return {};
    }
    const char c = s_[at_];
    if (c >= '0' && c <= '9') return number();
    if (is_word_char(c)) return name();
    if (c == '"' || c == '\'') return string(c);
    if (static_cast<unsigned char>(c) >= 0x80 && is_alpha(decode_utf8(s_.substr(at_)).code_point)) {
      return name();
    }
    return op();
  }

  Status name() {
    std::size_t to = at_;
    while (to < s_.size()) {
      const DecodedChar c = decode_utf8(s_.substr(to));
      const bool is_part = c.code_point < 0x80 ? is_word_char(s_[to])
                                               : is_alpha(c.code_point) || is_numeric(c.code_point);
      if (!is_part) break;
      to += c.n_bytes;
    }
    push(TokenKind::name, s_.substr(at_, to - at_));
    advance_to(to);
    return {};
  }

  // Digits with single underscores between them, from `at`; returns where they end.
  std::size_t digits(std::size_t at, std::string_view allowed) const {
    while (at < s_.size()) {
      const bool is_digit = allowed.find(s_[at]) != allowed.npos;
      const bool is_joint =
          s_[at] == '_' && at + 1 < s_.size() && allowed.find(s_[at + 1]) != allowed.npos;
      if (!is_digit && !is_joint) break;
      ++at;
    }
    return at;
  }

  Status number() {
    constexpr std::string_view kDecimal = "0123456789";
    std::size_t to = digits(at_, kDecimal);
    bool is_float = false;
    if (at_ == 0 || s_[at_ - 1] != '.') {  // "x.0.1" is two subscripts
      if (to + 1 < s_.size() && s_[to] == '.' && kDecimal.find(s_[to + 1]) != s_.npos) {
        is_float = true;
        to = digits(to + 1, kDecimal);
      }
      if (to < s_.size() && (s_[to] == 'e' || s_[to] == 'E')) {
        std::size_t exponent = to + 1;
        if (exponent < s_.size() && (s_[exponent] == '+' || s_[exponent] == '-')) ++exponent;
        if (exponent < s_.size() && kDecimal.find(s_[exponent]) != s_.npos) {
          is_float = true;
          to = digits(exponent, kDecimal);
        }
      }
    }
    if (!is_float) to = integer_end(to);
    std::string text(s_.substr(at_, to - at_));
    std::erase(text, '_');
    push(is_float ? TokenKind::floating : TokenKind::integer, text);
    advance_to(to);
    return {};
  }

  // Where the integer at at_ ends, prefixes 0x 0o 0b included; a leading zero stands for zeros
  // only.
  std::size_t integer_end(std::size_t decimal_end) const {
    if (s_[at_] != '0') return decimal_end;
    if (at_ + 1 < s_.size()) {
      const char prefix = static_cast<char>(s_[at_ + 1] | 0x20);
      const std::string_view allowed = prefix == 'x'   ? "0123456789abcdefABCDEF"
                                       : prefix == 'o' ? "01234567"
                                       : prefix == 'b' ? "01"
                                                       : "";
      const std::size_t to = digits(at_ + 2, allowed);
      if (to > at_ + 2) return to;
    }
    return digits(at_, "0");
  }

  Status string(char quote) {
    std::size_t to = at_ + 1;
    while (to < s_.size() && s_[to] != quote) to += s_[to] == '\\' ? 2 : 1;
    if (to >= s_.size()) {
      return syntax_error("unexpected char " + std::string(1, quote), line_);
    }
    auto value = unescape(s_.substr(at_ + 1, to - at_ - 1));
    if (!value) return syntax_error(value.error().what, line_);
    push(TokenKind::string, *value);
    advance_to(to + 1);
    return {};
  }

  Status op() {
    for (const std::string_view candidate : kOperators) {
      if (candidate == "!" || !starts(at_, candidate)) continue;
      KVASIR_TRY_DO(balance(candidate[0]));
      push(TokenKind::op, candidate);
      advance_to(at_ + candidate.size());
      return {};
    }
    const std::size_t n = decode_utf8(s_.substr(at_)).n_bytes;
    return syntax_error("unexpected char '" + std::string(s_.substr(at_, n)) + "'", line_);
  }

  Status balance(char c) {
    if (c == '{') brackets_ += '}';
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c != '}' && c != ')' && c != ']') return {};
    if (brackets_.empty()) return syntax_error(std::string("unexpected '") + c + "'", line_);
    const char expected = brackets_.back();
    brackets_.pop_back();
    if (expected == c) return {};
    return syntax_error(std::string("unexpected '") + c + "', expected '" + expected + "'", line_);
  }

  std::string_view s_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closers still expected in this tag
  std::vector<Token> tokens_;
};

}  // namespace

Error syntax_error(std::string_view message, std::uint32_t line) {
  return invalid(std::string(message) + " (line " + std::to_string(line) + ")");
}

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return is_valid_utf8(out) ? out : repair_utf8(out);
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace kvasir::text::tmpl
