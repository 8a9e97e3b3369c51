#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/utf8.h"
#include "text/tokenizer/regex_syntax.h"
#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 << 10;
// Start positions tried in one call of the library; between calls the clock is looked at.
constexpr std::size_t kWindowBytes = 512;
constexpr std::size_t kUnwatchedBytes = 4096;
// Ordinary patterns need about 0.05 µs a byte.
constexpr double kBudgetSeconds = 1.0;
constexpr double kBudgetSecondsPerByte = 4e-6;
constexpr std::uint32_t kHeapLimitKib = 256 << 10;
// Backtracks of one attempt.
constexpr std::size_t kMinBacktracks = 2'000'000;
constexpr std::size_t kBacktracksPerByte = 16;

struct FreeCode {
  void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
};
struct FreeData {
  void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* p) const noexcept { pcre2_compile_context_free(p); }
};
using CodePtr = std::unique_ptr<pcre2_code, FreeCode>;
using DataPtr = std::unique_ptr<pcre2_match_data, FreeData>;
using ContextPtr = std::unique_ptr<pcre2_match_context, FreeContext>;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

Result<CodePtr> compile_pcre(const std::string& pattern, bool want_jit) {
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ are line anchors.
  const std::uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C;
  CodePtr compiled(
      pcre2_compile(units(pattern), pattern.size(), options, &code, &offset, context.get()));
  if (!compiled) {
    PCRE2_UCHAR message[160];
    pcre2_get_error_message(code, message, sizeof message);
    return invalid(reinterpret_cast<const char*>(message));
  }
  if (want_jit)
    pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);  // without it the interpreter runs
  return compiled;
}

ContextPtr make_limits(std::size_t n_text_bytes) {
  ContextPtr limits(pcre2_match_context_create(nullptr));
  const std::size_t n_backtracks = std::max(kMinBacktracks, kBacktracksPerByte * n_text_bytes);
  pcre2_set_match_limit(
      limits.get(), static_cast<std::uint32_t>(std::min<std::size_t>(n_backtracks, UINT32_MAX)));
  pcre2_set_heap_limit(limits.get(), kHeapLimitKib);
  return limits;
}

// Every scalar value, in order, as UTF-8.
const std::string& all_characters() {
  static const std::string all = [] {
    std::string out;
    for (char32_t c = 0; c <= 0x10FFFF; ++c) {
      if (c < 0xD800 || c > 0xDFFF) append_utf8(out, c);
    }
    return out;
  }();
  return all;
}

Result<CodeSet> class_members(const std::string& items) {
  KVASIR_TRY(const CodePtr code, compile_pcre("[" + items + "]++", true));
  const DataPtr data(pcre2_match_data_create(1, nullptr));
  const std::string& all = all_characters();
  CodeSet out;
  std::size_t at = 0;
  while (pcre2_match(code.get(), units(all), all.size(), at, PCRE2_NO_UTF_CHECK, data.get(),
                     nullptr) > 0) {
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
    const std::string_view run = std::string_view(all).substr(span[0], span[1] - span[0]);
    out.emplace_back(first_char(run).code_point, last_char(run).code_point);
    at = span[1];
  }
  return out;
}

using Clock = std::chrono::steady_clock;

}  // namespace

struct Regex::Code {
  CodePtr code;  // null: a literal
  std::string literal;
  bool is_tame = true;
  ContextPtr limits;
};

Result<Regex> Regex::literal(std::string_view text) {
  auto out = std::make_shared<Code>();
  out->literal = text;
  return Regex(std::move(out));
}

Result<Regex> Regex::compile(std::string_view oniguruma) {
  if (oniguruma.size() > kMaxPatternBytes)
    return invalid("tokenizer: a pattern of more than 64 KiB");
  const std::string name = "tokenizer: pattern \"" + std::string(oniguruma.substr(0, 200)) + "\": ";
  if (!is_valid_utf8(oniguruma)) return invalid(name + "not UTF-8");
  auto pattern = to_pcre(oniguruma, class_members);
  if (!pattern) return invalid(name + pattern.error().what);
  auto code = compile_pcre(pattern->text, pattern->is_tame);
  if (!code) return invalid(name + code.error().what);
  auto out = std::make_shared<Code>();
  out->code = *std::move(code);
  out->is_tame = pattern->is_tame;
  out->limits = make_limits(0);
  return Regex(std::move(out));
}

Status Regex::find_all(std::string_view text, std::vector<Range>& out) const {
  if (code_->code) return search(text, out);
  const std::string& needle = code_->literal;
  if (needle.empty()) return {};
  for (std::size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size())) {
    out.push_back({at, at + needle.size()});
  }
  return {};
}

Status Regex::search(std::string_view text, std::vector<Range>& out) const {
  const DataPtr data(pcre2_match_data_create(1, nullptr));
  ContextPtr windowed;  // long texts: a call gives up after kWindowBytes of start positions
  if (text.size() > kUnwatchedBytes) windowed = make_limits(text.size());
  const pcre2_match_context* limits = windowed ? windowed.get() : code_->limits.get();
  const auto start = Clock::now();
  const double budget = kBudgetSeconds + kBudgetSecondsPerByte * static_cast<double>(text.size());
  std::uint32_t options = PCRE2_NO_UTF_CHECK;
  std::size_t at = 0;
  std::size_t n_calls = 0;
  bool is_slow_window = false;
  std::optional<std::size_t> last_end;
  while (at <= text.size()) {
    if (windowed) {
      pcre2_set_offset_limit(windowed.get(), at + kWindowBytes);
      const bool is_due = is_slow_window || ++n_calls % 16 == 0;
      if (is_due && std::chrono::duration<double>(Clock::now() - start).count() > budget) {
        return Error{Errc::capacity, "tokenizer: a pattern takes too long on this text"};
      }
      is_slow_window = false;
    }
    const int rc = pcre2_match(code_->code.get(), units(text), text.size(), at, options, data.get(),
                               const_cast<pcre2_match_context*>(limits));
    if (rc == PCRE2_ERROR_NOMATCH) {
      if (!windowed || at + kWindowBytes >= text.size()) return {};
      is_slow_window = true;
      at += kWindowBytes;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && (options & PCRE2_NO_JIT) == 0) {
      options |= PCRE2_NO_JIT;  // the interpreter keeps its frames on the heap
      continue;
    }
    if (rc < 0)
      return Error{Errc::capacity, "tokenizer: a pattern exceeded its limits on this text"};
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = span[0], end = span[1];
    if (begin > end) return invalid("tokenizer: a pattern whose match starts after its end");
    if (begin == end && last_end == end) {  // no empty match right after a match
      if (at >= text.size()) return {};
      at += first_char(text.substr(at)).n_bytes;
      continue;
    }
    out.push_back({begin, end});
    last_end = end;
    at = end;
  }
  return {};
}

}  // namespace kvasir::text::tok
