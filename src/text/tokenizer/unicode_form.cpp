// NFC, NFD, NFKC, NFKD (UAX #15). Works on stretches between characters that nothing composes with,
// so ASCII text is copied and origins stay exact; marks are sorted in O(n log n) whatever their
// order.
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr std::size_t kMaxDecomposition = 32;  // the longest in Unicode has 18 code points

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(Form form)
      : is_compat_(form == Form::nfkc || form == Form::nfkd),
        is_composed_(form == Form::nfc || form == Form::nfkc) {}

  Status apply(Normalized& n) const override {
    const auto is_ascii = [](char b) { return static_cast<unsigned char>(b) < 0x80; };
    if (std::all_of(n.text.begin(), n.text.end(), is_ascii)) return {};
    Rewriter rw(n);
    std::vector<utf8proc_int32_t> stretch;
    std::string out;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < rw.in().size();) {
      const Char c = first_char(rw.in().substr(at));
      std::array<utf8proc_int32_t, kMaxDecomposition> parts;
      const std::size_t n_parts = decompose(c.code_point, parts);
      if (!stretch.empty() && starts_afresh(parts[0])) {
        flush(rw, stretch, out, begin, at);
        begin = at;
      }
      stretch.insert(stretch.end(), parts.begin(),
                     parts.begin() + static_cast<std::ptrdiff_t>(n_parts));
      at += c.n_bytes;
    }
    flush(rw, stretch, out, begin, rw.in().size());
    rw.finish();
    return {};
  }

 private:
  std::size_t decompose(char32_t c, std::array<utf8proc_int32_t, kMaxDecomposition>& parts) const {
    int last_class = 0;
    const auto options =
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (is_compat_ ? UTF8PROC_COMPAT : 0));
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                           kMaxDecomposition, options, &last_class);
    if (n > 0 && n <= static_cast<utf8proc_ssize_t>(kMaxDecomposition))
      return static_cast<std::size_t>(n);
    parts[0] = static_cast<utf8proc_int32_t>(c);
    return 1;
  }

  // No character that starts like this is ever moved before, or composed with, what stands before
  // it: of the starters only marks and conjoining vowels and finals of Hangul are second in a
  // composition.
  static bool starts_afresh(utf8proc_int32_t first) {
    if (first < 0x80) return true;
    if (first >= 0x1160 && first <= 0x11FF) return false;
    const utf8proc_property_t* p = utf8proc_get_property(first);
    return p->combining_class == 0 && !is_mark(static_cast<char32_t>(first));
  }

  void flush(Rewriter& rw,
             std::vector<utf8proc_int32_t>& stretch,
             std::string& out,
             std::size_t begin,
             std::size_t end) const {
    if (end - begin == 1) {  // ASCII
      stretch.clear();
      rw.keep(begin, end);
      return;
    }
    sort_marks(stretch);
    if (is_composed_) {
      const auto composing = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
      const auto n = utf8proc_normalize_utf32(
          stretch.data(), static_cast<utf8proc_ssize_t>(stretch.size()), composing);
      if (n >= 0) stretch.resize(static_cast<std::size_t>(n));
    }
    out.clear();
    for (const utf8proc_int32_t c : stretch) append_utf8(out, static_cast<char32_t>(c));
    stretch.clear();
    rw.emit(out, begin, end);
  }

  static void sort_marks(std::vector<utf8proc_int32_t>& text) {
    const auto rank = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    for (auto at = text.begin(); at != text.end();) {
      if (rank(*at) == 0) {
        ++at;
        continue;
      }
      const auto end =
          std::find_if(at, text.end(), [&](utf8proc_int32_t c) { return rank(c) == 0; });
      std::stable_sort(at, end,
                       [&](utf8proc_int32_t a, utf8proc_int32_t b) { return rank(a) < rank(b); });
      at = end;
    }
  }

  bool is_compat_;
  bool is_composed_;
};

}  // namespace

std::unique_ptr<Normalizer> make_unicode_form(Form form) {
  return std::make_unique<UnicodeForm>(form);
}

}  // namespace kvasir::text::tok
