#include "text/template/str.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace kvasir::text::tmpl {

bool Str::is_content_at(std::size_t offset) const noexcept {
  const Span* last = spans + n_spans;
  const Span* found = std::upper_bound(
      spans, last, offset, [](std::size_t at, const Span& span) { return at < span.end; });
  return found != last && found->begin <= offset;
}

bool is_ascii(std::string_view bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::int64_t count_chars(std::string_view bytes) noexcept {
  if (is_ascii(bytes)) return static_cast<std::int64_t>(bytes.size());
  std::int64_t n = 0;
  for (std::size_t at = 0; at < bytes.size(); ++n) at += decode_utf8(bytes.substr(at)).n_bytes;
  return n;
}

std::int64_t char_count(Str& s) noexcept {
  if (s.n_chars < 0) s.n_chars = count_chars(s.bytes);
  return s.n_chars;
}

std::size_t char_to_byte(std::string_view bytes, std::int64_t index) noexcept {
  std::size_t at = 0;
  for (; index > 0 && at < bytes.size(); --index) {
    at += static_cast<unsigned char>(bytes[at]) < 0x80 ? 1 : decode_utf8(bytes.substr(at)).n_bytes;
  }
  return at;
}

void Builder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!spans_.empty() && spans_.back().end == begin) {
    spans_.back().end = end;
  } else {
    spans_.push_back({begin, end});
  }
}

void Builder::append(std::string_view bytes, bool is_content) {
  if (bytes.size() > kMaxTextBytes - bytes_.size()) {
    overflowed_ = true;
    return;
  }
  const std::size_t at = bytes_.size();
  bytes_ += bytes;
  if (is_content) mark(at, bytes_.size());
}

void Builder::append(const Str& s, std::size_t begin, std::size_t end) {
  const std::size_t at = bytes_.size();
  append(s.bytes.substr(begin, end - begin));
  if (overflowed_) return;
  for (std::uint32_t i = 0; i < s.n_spans; ++i) {
    const std::size_t from = std::max(s.spans[i].begin, begin);
    const std::size_t to = std::min(s.spans[i].end, end);
    if (from < to) mark(at + from - begin, at + to - begin);
  }
}

namespace {

Span* copy_spans(Arena& arena, const Span* spans, std::size_t n) {
  auto* copy = static_cast<Span*>(arena.allocate(n * sizeof(Span), alignof(Span)));
  std::copy(spans, spans + n, copy);
  return copy;
}

std::string_view copy_bytes(Arena& arena, std::string_view bytes) {
  if (bytes.empty()) return {};
  char* copy = arena.bytes(bytes.size());
  std::memcpy(copy, bytes.data(), bytes.size());
  return {copy, bytes.size()};
}

}  // namespace

Str* make_str(Arena& arena, const Builder& built) {
  Str* s = view_str(arena, copy_bytes(arena, built.bytes()));
  if (!built.spans().empty()) {
    s->spans = copy_spans(arena, built.spans().data(), built.spans().size());
    s->n_spans = static_cast<std::uint32_t>(built.spans().size());
  }
  return s;
}

Str* make_str(Arena& arena, std::string_view bytes, bool is_content) {
  return view_str(arena, copy_bytes(arena, bytes), is_content);
}

Str* view_str(Arena& arena, std::string_view bytes, bool is_content) {
  Str* s = arena.make<Str>();
  s->bytes = bytes;
  if (is_content && !bytes.empty()) {
    const Span whole{0, bytes.size()};
    s->spans = copy_spans(arena, &whole, 1);
    s->n_spans = 1;
  }
  return s;
}

Str* sub_str(Arena& arena, const Str& s, std::size_t begin, std::size_t end) {
  Str* part = view_str(arena, s.bytes.substr(begin, end - begin), s.all_content());
  part->markup = s.markup;
  if (s.n_spans == 0 || s.all_content()) return part;
  std::vector<Span> spans;
  for (std::uint32_t i = 0; i < s.n_spans; ++i) {
    const std::size_t from = std::max(s.spans[i].begin, begin);
    const std::size_t to = std::min(s.spans[i].end, end);
    if (from < to) spans.push_back({from - begin, to - begin});
  }
  if (spans.empty()) return part;
  part->spans = copy_spans(arena, spans.data(), spans.size());
  part->n_spans = static_cast<std::uint32_t>(spans.size());
  return part;
}

Str* concat(Arena& arena, const Str& a, const Str& b) {
  const std::size_t n = a.bytes.size() + b.bytes.size();
  char* bytes = arena.bytes(n + 1);
  std::copy(a.bytes.begin(), a.bytes.end(), bytes);
  std::copy(b.bytes.begin(), b.bytes.end(), bytes + a.bytes.size());
  Str* s = view_str(arena, {bytes, n});
  if (a.n_spans + b.n_spans == 0) return s;
  Span* spans =
      static_cast<Span*>(arena.allocate((a.n_spans + b.n_spans) * sizeof(Span), alignof(Span)));
  std::copy(a.spans, a.spans + a.n_spans, spans);
  std::uint32_t used = a.n_spans;
  for (std::uint32_t i = 0; i < b.n_spans; ++i) {
    const Span moved{b.spans[i].begin + a.bytes.size(), b.spans[i].end + a.bytes.size()};
    if (used > 0 && spans[used - 1].end == moved.begin) {
      spans[used - 1].end = moved.end;
    } else {
      spans[used++] = moved;
    }
  }
  s->spans = spans;
  s->n_spans = used;
  return s;
}

}  // namespace kvasir::text::tmpl
