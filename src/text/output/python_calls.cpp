#include "text/output/python_calls.h"

#include "base/utf8.h"
#include "json/json.h"
#include "text/output/json_scan.h"

namespace kvasir::text::out {
namespace {

constexpr int kMaxDepth = 64;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

class Reader {
 public:
  Reader(std::string_view text, const ToolSet& tools) : text_(text), tools_(tools) {}

  bool calls(std::vector<ParsedCall>& out) {
    skip();
    const bool is_list = take('[');
    do {
      skip();
      if (is_list && peek() == ']') break;
      if (!call(out)) return false;
    } while (is_list && take(','));
    if (is_list && !take(']')) return false;
    skip();
    return at_ == text_.size();
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void skip() {
    while (is_space(peek())) ++at_;
  }
  bool take(char c) {
    skip();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  std::string_view name() {
    skip();
    const std::size_t begin = at_;
    while (is_name_char(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool call(std::vector<ParsedCall>& out) {
    std::string_view tool = name();
    if (!tools_.has(tool) && tool.ends_with(".call")) tool.remove_suffix(5);
    if (!tools_.has(tool) || !take('(')) return false;
    Arguments arguments;
    while (!take(')')) {
      const std::string_view key = name();
      std::string value;
      if (key.empty() || !take('=') || !argument(tool, key, value)) return false;
      arguments.add(key, value);
      skip();
      if (!take(',') && peek() != ')') return false;
    }
    out.push_back({std::string(tool), std::move(arguments).take()});
    return true;
  }

  // A bare word stays verbatim where the schema wants a string.
  bool argument(std::string_view tool, std::string_view key, std::string& out) {
    skip();
    const bool is_bare = std::string_view("'\"[({").find(peek()) == std::string_view::npos;
    if (!is_bare || !tools_.is_string(tool, key)) return value(out, 0);
    const std::size_t begin = at_;
    while (at_ < text_.size() && peek() != ',' && peek() != ')') ++at_;
    const std::string_view word = trim(text_.substr(begin, at_ - begin));
    if (word.empty()) return false;
    if (word == "None") {
      out += "null";
    } else {
      json::append_quoted(out, word);
    }
    return true;
  }

  bool value(std::string& out, int depth) {
    skip();
    if (depth > kMaxDepth) return false;
    switch (peek()) {
      case '"':
      case '\'': {
        std::string text;
        if (!string(text)) return false;
        json::append_quoted(out, text);
        return true;
      }
      case '[':
        return items(out, ']', depth);
      case '(':
        return items(out, ')', depth);
      case '{':
        return dict(out, depth);
      default:
        return word(out);
    }
  }

  bool items(std::string& out, char close, int depth) {
    ++at_;
    out += '[';
    for (bool is_first = true; !take(close); is_first = false) {
      if (!is_first) out += ',';
      if (!value(out, depth + 1)) return false;
      skip();
      if (!take(',') && peek() != close) return false;
    }
    out += ']';
    return true;
  }

  bool dict(std::string& out, int depth) {
    ++at_;
    out += '{';
    for (bool is_first = true; !take('}'); is_first = false) {
      if (!is_first) out += ',';
      skip();
      std::string key;
      if (peek() == '"' || peek() == '\'') {
        if (!string(key)) return false;
      } else {
        key = name();
        if (key.empty()) return false;
      }
      json::append_quoted(out, key);
      out += ':';
      if (!take(':') || !value(out, depth + 1)) return false;
      skip();
      if (!take(',') && peek() != '}') return false;
    }
    out += '}';
    return true;
  }

  bool word(std::string& out) {
    const std::size_t begin = at_;
    while (is_name_char(peek()) || peek() == '+') ++at_;
    std::string text(text_.substr(begin, at_ - begin));
    if (text == "True" || text == "true") return append(out, "true");
    if (text == "False" || text == "false") return append(out, "false");
    if (text == "None" || text == "null") return append(out, "null");
    return number(std::move(text), out);
  }

  static bool append(std::string& out, std::string_view text) {
    out += text;
    return true;
  }

  // Python also writes 1_000, +1, .5 and 5.
  static bool number(std::string text, std::string& out) {
    std::erase(text, '_');
    if (text.starts_with('+')) text.erase(0, 1);
    const std::size_t first = text.starts_with('-') ? 1 : 0;
    if (text.substr(first).starts_with('.')) text.insert(first, 1, '0');
    const std::size_t dot = text.find('.');
    const bool needs_digit =
        dot != std::string::npos &&
        (dot + 1 == text.size() || text[dot + 1] == 'e' || text[dot + 1] == 'E');
    if (needs_digit) text.insert(dot + 1, 1, '0');
    const auto parsed = json::parse(text);
    return parsed && parsed->is_number() && append(out, text);
  }

  // A quote ends the string only where something may follow a string: models print strings with
  // unescaped quotes inside.
  bool is_closing_quote() const {
    std::size_t ahead = 1;
    while (is_space(peek(ahead))) ++ahead;
    const char c = peek(ahead);
    return at_ + ahead >= text_.size() || c == ',' || c == ')' || c == ']' || c == '}' || c == ':';
  }

  bool string(std::string& out) {
    const char quote = peek();
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = peek();
      if (c == quote && is_closing_quote()) {
        ++at_;
        return true;
      }
      if (c == '\\') {
        ++at_;
        escape(out);
      } else {
        out += c;
      }
    }
    return false;
  }

  // at_ is at the character after the backslash; ends at the escape's last one.
  void escape(std::string& out) {
    constexpr std::string_view kFrom = "ntrbfav0\\'\"",
                               kTo = std::string_view("\n\t\r\b\f\a\v\0\\'\"", 11);
    const char c = peek();
    if (c == '\n') return;
    if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t n_digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      if (hex(n_digits, out)) return;
    }
    const std::size_t at = kFrom.find(c);
    if (at_ < text_.size() && at != std::string_view::npos) {
      out += kTo[at];
      return;
    }
    out += '\\';
    if (at_ < text_.size()) out += c;
  }

  bool hex(std::size_t n_digits, std::string& out) {
    char32_t code = 0;
    if (!hex_digits(1, n_digits, code)) return false;
    at_ += n_digits;
    char32_t low = 0;  // of a pair of surrogates
    const bool is_high = code >= 0xD800 && code < 0xDC00;
    if (is_high && peek(1) == '\\' && peek(2) == 'u' && hex_digits(3, 4, low) && low >= 0xDC00 &&
        low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      at_ += 6;
    }
    append_utf8(out, code);
    return true;
  }

  bool hex_digits(std::size_t ahead, std::size_t n_digits, char32_t& code) const {
    constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
    for (std::size_t i = 0; i < n_digits; ++i) {
      const char c = peek(ahead + i);
      const std::size_t digit = c == '\0' ? std::string_view::npos : kDigits.find(c);
      if (digit == std::string_view::npos) return false;
      code = code * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    return true;
  }

  std::string_view text_;
  const ToolSet& tools_;
  std::size_t at_ = 0;
};

}  // namespace

bool build_python_calls(std::string_view text,
                        const ToolSet& tools,
                        std::vector<ParsedCall>& calls) {
  return Reader(text, tools).calls(calls);
}

}  // namespace kvasir::text::out
