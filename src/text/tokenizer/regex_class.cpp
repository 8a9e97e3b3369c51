#include "text/tokenizer/regex_class.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/utf8.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr int kMaxNesting = 16;

struct PosixName {
  std::string_view name, items;
};
// Property names that Oniguruma reads as POSIX brackets over Unicode.
constexpr std::array kPosixNames{
    PosixName{"space", kSpaceItems},
    PosixName{"word", kWordItems},
    PosixName{"alpha", R"(\p{Alphabetic})"},
    PosixName{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    PosixName{"digit", R"(\p{Nd})"},
    PosixName{"xdigit", kHexItems},
    PosixName{"upper", R"(\p{Uppercase})"},
    PosixName{"lower", R"(\p{Lowercase})"},
    PosixName{"punct", R"(\p{P}\p{S})"},
    PosixName{"cntrl", R"(\p{Cc})"},
    PosixName{"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    PosixName{"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
    PosixName{"blank", R"(\x{9}\p{Zs})"}};

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return out;
}

std::string property_items(std::string_view name) {
  const std::string key = folded(name);
  for (const PosixName& p : kPosixNames) {
    if (p.name == key) return std::string(p.items);
  }
  return "\\p{" + std::string(name) + "}";
}

std::string code_text(char32_t c) {
  std::array<char, 8> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<unsigned>(c), 16).ptr;
  return "\\x{" + std::string(digits.data(), end) + "}";
}

std::string set_text(const CodeSet& set) {
  std::string out;
  for (auto [lo, hi] : set) {
    if (lo >= 0xD800 && lo <= 0xDFFF) lo = 0xE000;  // surrogates are no characters
    if (hi >= 0xD800 && hi <= 0xDFFF) hi = 0xD7FF;
    if (lo > hi) continue;
    out += code_text(lo);
    if (hi > lo) out += '-' + code_text(hi);
  }
  return out;
}

bool read_hex(std::string_view digits, char32_t& out) {
  unsigned value = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (ec != std::errc() || end != digits.data() + digits.size() || value > 0x10FFFF) return false;
  out = value;
  return true;
}

class ClassReader {
 public:
  ClassReader(std::string_view pattern, std::size_t& at, const ClassEvaluator& evaluate)
      : pattern_(pattern), at_(at), evaluate_(evaluate) {}

  // A class is kept as member text while that can express it; otherwise it becomes a set of code
  // points.
  struct Class {
    std::string items;
    bool is_negated = false;
  };

  Result<Class> read(int depth) {
    if (depth > kMaxNesting) return invalid("pattern: classes nested too deeply");
    Class out;
    ++at_;  // '['
    if (peek() == '^') {
      out.is_negated = true;
      ++at_;
    }
    std::optional<CodeSet> met;  // what stands before the last "&&"
    bool is_first = true;
    while (at_ < pattern_.size() && (pattern_[at_] != ']' || is_first)) {
      is_first = false;
      if (pattern_.substr(at_, 2) == "&&") {
        at_ += 2;
        KVASIR_TRY(met, meet(met, out.items));
        out.items.clear();
        continue;
      }
      KVASIR_TRY_DO(read_item(out.items, depth));
    }
    if (at_ >= pattern_.size()) return invalid("pattern: a class without end");
    ++at_;  // ']'
    if (met) {
      KVASIR_TRY(met, meet(met, out.items));
      out.items = set_text(*met);
    }
    return out;
  }

 private:
  char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }

  Result<std::optional<CodeSet>> meet(const std::optional<CodeSet>& so_far,
                                      const std::string& items) const {
    CodeSet right;
    if (!items.empty()) {
      KVASIR_TRY(right, evaluate_(items));
    }
    return std::optional<CodeSet>(so_far ? intersect(*so_far, right) : right);
  }

  Status add_set(std::string& items, const std::string& more, bool is_negated) const {
    if (!is_negated) {
      items += more;
      return {};
    }
    CodeSet set;
    if (!more.empty()) {
      KVASIR_TRY(set, evaluate_(more));
    }
    items += set_text(complement(set));
    return {};
  }

  Status read_item(std::string& items, int depth) {
    if (peek() == '[') {
      if (pattern_.substr(at_, 2) == "[:") return read_posix(items);
      KVASIR_TRY(const Class inner, read(depth + 1));
      return add_set(items, inner.items, inner.is_negated);
    }
    ShorthandSet set;
    if (peek() == '\\' && read_shorthand(pattern_, at_, set))
      return add_set(items, set.items, set.is_negated);
    KVASIR_TRY(const char32_t lo, read_char());
    // "a-z" is a range; a '-' before ']' or a set is itself.
    if (peek() != '-' || at_ + 1 >= pattern_.size() || pattern_[at_ + 1] == ']' ||
        pattern_[at_ + 1] == '[') {
      items += code_text(lo);
      return {};
    }
    std::size_t ahead = at_ + 1;
    ShorthandSet unused;
    if (pattern_[ahead] == '\\' && read_shorthand(pattern_, ahead, unused)) {
      items += code_text(lo);
      return {};
    }
    ++at_;
    KVASIR_TRY(const char32_t hi, read_char());
    if (hi < lo) return invalid("pattern: empty range in a class");
    items += code_text(lo) + '-' + code_text(hi);
    return {};
  }

  Status read_posix(std::string& items) {
    const std::size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) return invalid("pattern: a POSIX class without end");
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const bool is_negated = !name.empty() && name[0] == '^';
    if (is_negated) name.remove_prefix(1);
    at_ = end + 2;
    return add_set(items, property_items(name), is_negated);
  }

  Result<char32_t> read_char() {
    if (at_ >= pattern_.size()) return invalid("pattern: a class without end");
    if (pattern_[at_] != '\\') {
      const Char c = first_char(pattern_.substr(at_));
      at_ += c.n_bytes;
      return c.code_point;
    }
    return read_escape();
  }

  Result<char32_t> read_escape() {
    if (at_ + 1 >= pattern_.size()) return invalid("pattern: a backslash at the end");
    const Char c = first_char(pattern_.substr(at_ + 1));
    at_ += 1 + c.n_bytes;
    switch (c.code_point) {
      case 'n':
        return char32_t{'\n'};
      case 'r':
        return char32_t{'\r'};
      case 't':
        return char32_t{'\t'};
      case 'f':
        return char32_t{'\f'};
      case 'v':
        return char32_t{'\v'};
      case 'a':
        return char32_t{'\a'};
      case 'e':
        return char32_t{0x1B};
      case 'b':
        return char32_t{'\b'};
      case 'x':
        return read_hex_escape(2);
      case 'u':
        return read_hex_escape(4);
      case '0':
        return char32_t{0};
      default:
        return c.code_point;
    }
  }

  Result<char32_t> read_hex_escape(std::size_t n_digits) {
    char32_t value = 0;
    if (peek() == '{') {
      const std::size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos ||
          !read_hex(pattern_.substr(at_ + 1, end - at_ - 1), value)) {
        return invalid("pattern: a bad \\x{...}");
      }
      at_ = end + 1;
      return value;
    }
    if (at_ + n_digits > pattern_.size() || !read_hex(pattern_.substr(at_, n_digits), value)) {
      return invalid("pattern: a bad hexadecimal escape");
    }
    at_ += n_digits;
    return value;
  }

  std::string_view pattern_;
  std::size_t& at_;
  const ClassEvaluator& evaluate_;
};

}  // namespace

bool read_shorthand(std::string_view pattern, std::size_t& at, ShorthandSet& out) {
  if (at + 1 >= pattern.size()) return false;
  const char c = pattern[at + 1];
  if (c == 'p' || c == 'P') {
    if (at + 2 >= pattern.size() || pattern[at + 2] != '{') return false;
    const std::size_t end = pattern.find('}', at);
    if (end == std::string_view::npos) return false;
    std::string_view name = pattern.substr(at + 3, end - at - 3);
    out.is_negated = c == 'P';
    if (!name.empty() && name[0] == '^') {
      out.is_negated = !out.is_negated;
      name.remove_prefix(1);
    }
    out.items = property_items(name);
    at = end + 1;
    return true;
  }
  const auto set = [&](std::string_view items, bool is_negated) {
    out = {std::string(items), is_negated};
    at += 2;
    return true;
  };
  switch (c) {
    case 's':
      return set(kSpaceItems, false);
    case 'S':
      return set(kSpaceItems, true);
    case 'w':
      return set(kWordItems, false);
    case 'W':
      return set(kWordItems, true);
    case 'd':
      return set(R"(\p{Nd})", false);
    case 'D':
      return set(R"(\p{Nd})", true);
    case 'h':
      return set(kHexItems, false);
    case 'H':
      return set(kHexItems, true);
    default:
      return false;
  }
}

Result<std::string> read_class(std::string_view pattern,
                               std::size_t& at,
                               const ClassEvaluator& evaluate) {
  ClassReader reader(pattern, at, evaluate);
  KVASIR_TRY(const ClassReader::Class c, reader.read(0));
  if (c.items.empty()) return std::string(c.is_negated ? R"([\x{0}-\x{10ffff}])" : "(?!)");
  return (c.is_negated ? "[^" : "[") + c.items + "]";
}

}  // namespace kvasir::text::tok
