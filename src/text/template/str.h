// The engine's string: UTF-8 bytes and which of them came from content (TXT-32). Strings are
// immutable; a part of a string shares its bytes. Python's indices are code points, ours are bytes:
// char_to_byte translates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/arena.h"

namespace kvasir::text::tmpl {

inline constexpr std::size_t kMaxTextBytes = std::size_t{64}
                                             << 20;  // TXT-30: output, and any single string

struct Span {
  std::size_t begin = 0;  // byte offsets, half open
  std::size_t end = 0;
};

struct Str {
  std::string_view bytes;
  const Span* spans = nullptr;  // the content parts: ascending, not empty, not touching
  std::uint32_t n_spans = 0;
  bool markup = false;        // result of `safe` or `escape` (Python's Markup)
  std::int64_t n_chars = -1;  // code points; -1 = not yet counted

  bool is_content_at(std::size_t offset) const noexcept;
  bool all_content() const noexcept {
    return n_spans == 1 && spans[0].begin == 0 && spans[0].end == bytes.size();
  }
};

std::int64_t count_chars(std::string_view bytes) noexcept;
std::int64_t char_count(Str& s) noexcept;  // cached in s
bool is_ascii(std::string_view bytes) noexcept;
// Byte offset of the index-th code point of bytes, bytes.size() when there are fewer.
std::size_t char_to_byte(std::string_view bytes, std::int64_t index) noexcept;

// Grows a text with its origins. Past kMaxTextBytes it stops growing and reports overflow.
class Builder {
 public:
  void append(std::string_view bytes, bool is_content = false);
  void append(const Str& s) { append(s, 0, s.bytes.size()); }
  void append(const Str& s, std::size_t begin, std::size_t end);  // the bytes [begin, end) of s
  void reserve(std::size_t n) { bytes_.reserve(n); }

  const std::string& bytes() const noexcept { return bytes_; }
  const std::vector<Span>& spans() const noexcept { return spans_; }
  std::size_t size() const noexcept { return bytes_.size(); }
  bool overflowed() const noexcept { return overflowed_; }
  std::string take_bytes() && { return std::move(bytes_); }

 private:
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<Span> spans_;
  bool overflowed_ = false;
};

Str* make_str(Arena& arena, const Builder& built);
Str* make_str(Arena& arena, std::string_view bytes, bool is_content = false);  // copies the bytes
Str* view_str(Arena& arena,
              std::string_view bytes,
              bool is_content = false);  // bytes outlive the arena
Str* sub_str(Arena& arena,
             const Str& s,
             std::size_t begin,
             std::size_t end);  // bytes [begin, end), shared
Str* concat(Arena& arena, const Str& a, const Str& b);

}  // namespace kvasir::text::tmpl
