#include "text/output/tool_parser.h"

#include <algorithm>
#include <utility>

namespace kvasir::text::out {

std::vector<std::string> ToolParser::texts_of(const FormatSpec* format, const MarkerSet& markers) {
  std::vector<std::string> out;
  if (format == nullptr) return out;
  for (std::size_t i = 0; i < format->markers.size(); ++i) {
    const auto marker = static_cast<Marker>(i);
    if (!markers.is_special(marker) && !markers.text(marker).empty()) {
      out.emplace_back(markers.text(marker));
    }
  }
  return out;
}

ToolParser::ToolParser(const FormatSpec* format, const MarkerSet& markers, const ToolSet& tools)
    : format_(format),
      markers_(markers),
      scanner_(texts_of(format, markers)),
      region_(format != nullptr ? format->region : Region::Format{}, markers, tools) {
  for (std::size_t i = 0; format != nullptr && i < format->markers.size(); ++i) {
    const auto marker = static_cast<Marker>(i);
    if (!markers.is_special(marker) && !markers.text(marker).empty()) {
      text_markers_.push_back(marker);
    }
  }
}

void ToolParser::push(std::string_view tagged, ToolSink& sink) {
  if (format_ == nullptr) {
    content(markers_.spell(tagged), sink);
    return;
  }
  scanner_.push(tagged);
  drain(sink, /*is_end=*/false);
}

void ToolParser::drain(ToolSink& sink, bool is_end) {
  while (auto event = scanner_.next(is_end)) {
    tagged_text(event->hit ? tagged_marker(text_markers_[*event->hit]) : event->text, sink);
  }
}

void ToolParser::tagged_text(std::string_view tagged, ToolSink& sink) {
  for (std::size_t at = 0; at < tagged.size() && !sink.is_full();) {
    at = is_inside_ ? inside(tagged, at, sink) : outside(tagged, at, sink);
  }
}

// Content up to what opens a region.
std::size_t ToolParser::outside(std::string_view tagged, std::size_t at, ToolSink& sink) {
  const std::size_t tag = std::min(tagged.find(kTag, at), tagged.size());
  const std::string_view text = tagged.substr(at, tag - at);
  if (const auto brace = opening_brace(text)) {
    content(text.substr(0, *brace), sink);
    open();
    return at + *brace;
  }
  content(text, sink);
  if (tag == tagged.size()) return tag;
  const Marker marker = symbol_at(tagged, tag).marker;
  if (marker < format_->markers.size() && (format_->openers & bit(marker)) != 0) {
    open();
    return tag;
  }
  content(markers_.text(marker), sink);
  return tag + kTagBytes;
}

std::optional<std::size_t> ToolParser::opening_brace(std::string_view text) const {
  if (!format_->opens_at_brace || !is_virgin_) return std::nullopt;
  std::size_t at = 0;
  while (at < text.size() && is_space(text[at])) ++at;
  if (at == text.size() || text[at] != '{') return std::nullopt;
  return at;
}

std::size_t ToolParser::inside(std::string_view tagged, std::size_t at, ToolSink& sink) {
  const Symbol symbol = symbol_at(tagged, at);
  std::vector<ParsedCall> calls;
  const Region::Fed fed = region_.feed(symbol, calls);
  deliver(std::move(calls), sink);
  if (fed.verdict != Region::Verdict::more) close(sink, fed.verdict == Region::Verdict::failed);
  return fed.is_read ? at + symbol.n_bytes() : at;
}

void ToolParser::deliver(std::vector<ParsedCall> calls, ToolSink& sink) {
  for (ParsedCall& call : calls) {
    if (sink.is_full()) return;
    sink.call(std::move(call));
    has_calls_ = true;
    is_shown_ = is_virgin_ = false;
    space_.clear();
  }
}

// The region is over. What it held when it failed is content; when it is done, only what follows
// its last marker is (white space that it looked at).
void ToolParser::close(ToolSink& sink, bool is_failed) {
  is_inside_ = false;
  const std::string& held = region_.held();
  const std::size_t tag = held.rfind(kTag);
  const bool is_closed = !is_failed && tag != std::string::npos;
  const std::string text = markers_.spell(is_closed ? held.substr(tag + kTagBytes) : held);
  if (!text.empty()) is_virgin_ = false;
  content(text, sink);
}

void ToolParser::content(std::string_view text, ToolSink& sink) {
  if (text.empty() || sink.is_full()) return;
  if (format_ != nullptr && !is_shown_) {
    space_ += text;
    if (trim(space_).empty()) return;
    is_shown_ = true;
    is_virgin_ = false;
    sink.content(std::exchange(space_, {}));
    return;
  }
  sink.content(text);
}

void ToolParser::finish(ToolSink& sink) {
  if (format_ == nullptr || sink.is_full()) return;
  drain(sink, /*is_end=*/true);
  if (is_inside_ && !sink.is_full()) {
    std::vector<ParsedCall> calls;
    region_.finish(calls);
    const bool is_done = !calls.empty();
    deliver(std::move(calls), sink);
    close(sink, !is_done);
  }
  if (!has_calls_ && !space_.empty() && !sink.is_full()) sink.content(space_);
  space_.clear();
}

}  // namespace kvasir::text::out
