#include "text/tokenizer/normalizer.h"

#include <optional>

#include "base/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

// Character by character: `map` gives what a character becomes; nullopt: it goes.
template <class Map>
void map_characters(Normalized& n, const Map& map) {
  Rewriter rw(n);
  std::string out;
  for (std::size_t at = 0; at < rw.in().size();) {
    const Char c = first_char(rw.in().substr(at));
    out.clear();
    if (map(c.code_point, out)) {
      rw.emit(out, at, at + c.n_bytes);
    } else {
      rw.drop(at, at + c.n_bytes);
    }
    at += c.n_bytes;
  }
  rw.finish();
}

void append_lower(std::string& out, char32_t c) {
  char32_t folded[2];
  const int n = lower(c, folded);
  for (int i = 0; i < n; ++i) append_utf8(out, folded[i]);
}

class Lowercase final : public Normalizer {
 public:
  Status apply(Normalized& n) const override {
    map_characters(n, [](char32_t c, std::string& out) {
      append_lower(out, c);
      return true;
    });
    return {};
  }
};

class StripAccents final : public Normalizer {
 public:
  Status apply(Normalized& n) const override {
    map_characters(n, [](char32_t c, std::string& out) {
      append_utf8(out, c);
      return !is_mark(c);
    });
    return {};
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool strips_left, bool strips_right) : left_(strips_left), right_(strips_right) {}

  Status apply(Normalized& n) const override {
    Rewriter rw(n);
    std::size_t begin = 0;
    std::size_t end = rw.in().size();
    while (left_ && begin < end) {
      const Char c = first_char(rw.in().substr(begin));
      if (!is_whitespace(c.code_point)) break;
      begin += c.n_bytes;
    }
    while (right_ && end > begin) {
      const Char c = last_char(rw.in().substr(0, end));
      if (!is_whitespace(c.code_point)) break;
      end -= c.n_bytes;
    }
    rw.drop(0, begin);
    rw.keep(begin, end);
    rw.finish();
    return {};
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  Status apply(Normalized& n) const override {
    if (n.text.empty()) return {};
    Rewriter rw(n);
    rw.emit(prefix_, 0, 0);
    rw.keep(0, rw.in().size());
    rw.finish();
    return {};
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status apply(Normalized& n) const override {
    std::vector<Range> hits;
    KVASIR_TRY_DO(pattern_.find_all(n.text, hits));
    if (hits.empty()) return {};
    Rewriter rw(n);
    std::size_t at = 0;
    for (const Range& hit : hits) {
      rw.keep(at, hit.begin);
      if (content_.empty()) {
        rw.drop(hit.begin, hit.end);
      } else {
        rw.emit(content_, hit.begin, hit.end);
      }
      at = hit.end;
    }
    rw.keep(at, rw.in().size());
    rw.finish();
    return {};
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Nmt final : public Normalizer {
 public:
  Status apply(Normalized& n) const override {
    map_characters(n, [](char32_t c, std::string& out) {
      if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
          c == 0x9F)
        return false;
      append_utf8(out, is_spacelike(c) ? U' ' : c);
      return true;
    });
    return {};
  }

 private:
  static bool is_spacelike(char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  Status apply(Normalized& n) const override {
    Rewriter rw(n);
    for (std::size_t at = 0; at < rw.in().size(); ++at) {
      const ByteChar& c = byte_chars()[static_cast<unsigned char>(rw.in()[at])];
      rw.emit({c.utf8, c.n_bytes}, at, at + 1);
    }
    rw.finish();
    return {};
  }
};

struct BertOptions {
  bool cleans = true;
  bool spaces_cjk = true;
  bool strips_accents = true;
  bool is_lowercase = true;
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(BertOptions options) : o_(options), nfd_(make_unicode_form(Form::nfd)) {}

  Status apply(Normalized& n) const override {
    if (o_.cleans) map_characters(n, clean);
    if (o_.spaces_cjk) map_characters(n, space_cjk);
    if (o_.strips_accents) {
      KVASIR_TRY_DO(nfd_->apply(n));
      map_characters(n, [](char32_t c, std::string& out) {
        append_utf8(out, c);
        return !is_nonspacing(c);
      });
    }
    return o_.is_lowercase ? Lowercase().apply(n) : Status{};
  }

 private:
  static bool clean(char32_t c, std::string& out) {
    const bool is_line_space = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == kReplacementCharacter || (is_control(c) && !is_line_space)) return false;
    append_utf8(out, is_whitespace(c) ? U' ' : c);
    return true;
  }

  static bool space_cjk(char32_t c, std::string& out) {
    const bool is_cjk = is_cjk_ideograph(c);
    if (is_cjk) out += ' ';
    append_utf8(out, c);
    if (is_cjk) out += ' ';
    return true;
  }

  BertOptions o_;
  std::unique_ptr<Normalizer> nfd_;
};

using Parsed = Result<std::unique_ptr<Normalizer>>;

Parsed parse_bert(const json::Value& spec) {
  BertOptions o;
  o.cleans = spec.bool_or("clean_text", true);
  o.spaces_cjk = spec.bool_or("handle_chinese_chars", true);
  o.is_lowercase = spec.bool_or("lowercase", true);
  o.strips_accents = spec.bool_or("strip_accents", o.is_lowercase);  // null follows lowercase
  return Parsed(std::make_unique<BertNormalizer>(o));
}

Parsed parse_precompiled(const json::Value& spec) {
  const json::Value* map = spec.find("precompiled_charsmap");
  if (map == nullptr || map->is_null()) return make_precompiled(Charsmap());
  if (!map->is_string()) return invalid("tokenizer: precompiled_charsmap is no string");
  KVASIR_TRY(const std::string bytes, decode_base64(*map->as_string()));
  KVASIR_TRY(Charsmap charsmap, Charsmap::parse(bytes));
  return Parsed(make_precompiled(std::move(charsmap)));
}

Parsed parse_one(const json::Value& spec, const std::string& type) {
  if (type == "NFC") return make_unicode_form(Form::nfc);
  if (type == "NFD") return make_unicode_form(Form::nfd);
  if (type == "NFKC") return make_unicode_form(Form::nfkc);
  if (type == "NFKD") return make_unicode_form(Form::nfkd);
  if (type == "Lowercase") return Parsed(std::make_unique<Lowercase>());
  if (type == "StripAccents") return Parsed(std::make_unique<StripAccents>());
  if (type == "Nmt") return Parsed(std::make_unique<Nmt>());
  if (type == "ByteLevel") return Parsed(std::make_unique<ByteLevelNormalizer>());
  if (type == "BertNormalizer") return parse_bert(spec);
  if (type == "Precompiled") return parse_precompiled(spec);
  if (type == "Prepend") return make_prepend(spec.string_or("prepend", ""));
  if (type == "Strip") {
    return Parsed(std::make_unique<Strip>(spec.bool_or("strip_left", true),
                                          spec.bool_or("strip_right", true)));
  }
  if (type == "Replace") {
    KVASIR_TRY(Regex pattern, parse_pattern(spec));
    return Parsed(std::make_unique<Replace>(std::move(pattern), spec.string_or("content", "")));
  }
  return unsupported("tokenizer: unknown normalizer type \"" + type + "\"");
}

}  // namespace

std::unique_ptr<Normalizer> make_prepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}

Result<std::unique_ptr<Normalizer>> make_replace(std::string_view literal, std::string content) {
  KVASIR_TRY(Regex pattern, Regex::literal(literal));
  return Parsed(std::make_unique<Replace>(std::move(pattern), std::move(content)));
}

std::unique_ptr<Normalizer> make_bert_normalizer(bool is_lowercase, bool strips_accents) {
  BertOptions o;
  o.is_lowercase = is_lowercase;
  o.strips_accents = strips_accents;
  return std::make_unique<BertNormalizer>(o);
}

Result<std::vector<std::unique_ptr<Normalizer>>> parse_normalizers(const json::Value& spec) {
  std::vector<std::unique_ptr<Normalizer>> out;
  KVASIR_TRY_DO(for_each_step(spec, "normalizers",
                              [&](const json::Value& step, const std::string& type) -> Status {
                                KVASIR_TRY(auto one, parse_one(step, type));
                                out.push_back(std::move(one));
                                return {};
                              }));
  return out;
}

}  // namespace kvasir::text::tok
