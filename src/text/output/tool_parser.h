// Last stage: content and tool calls (TXT-41…43). Content streams; from an opening marker on text
// is withheld until it is a call, or turns out to be none and is given back as it was.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/literal_scanner.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {

class ToolSink {
 public:
  virtual ~ToolSink() = default;
  virtual void content(std::string_view text) = 0;
  virtual void call(ParsedCall call) = 0;
  virtual bool is_full() const = 0;  // no more calls, and nothing behind them
};

class ToolParser {
 public:
  // `format` null: everything is content. Its markers must be the first in `markers`.
  ToolParser(const FormatSpec* format, const MarkerSet& markers, const ToolSet& tools);

  void push(std::string_view tagged, ToolSink& sink);
  // Text that is content whatever it looks like.
  void pass(std::string_view text, ToolSink& sink) { content(text, sink); }
  void finish(ToolSink& sink);

 private:
  static std::vector<std::string> texts_of(const FormatSpec* format, const MarkerSet& markers);
  void drain(ToolSink& sink, bool is_end);
  void tagged_text(std::string_view tagged, ToolSink& sink);
  std::size_t outside(std::string_view tagged, std::size_t at, ToolSink& sink);
  std::size_t inside(std::string_view tagged, std::size_t at, ToolSink& sink);
  std::optional<std::size_t> opening_brace(std::string_view text) const;
  void open() { is_inside_ = true, region_.start(); }
  void deliver(std::vector<ParsedCall> calls, ToolSink& sink);
  void close(ToolSink& sink, bool is_failed);
  void content(std::string_view text, ToolSink& sink);

  const FormatSpec* format_;
  const MarkerSet& markers_;
  LiteralScanner scanner_;            // for markers that are no special tokens
  std::vector<Marker> text_markers_;  // by literal of the scanner
  Region region_;
  bool is_inside_ = false;
  // White space at the start and after a call: shown once text follows, dropped next to a call.
  std::string space_;
  bool is_shown_ = false;  // the content since the start or the last call is more than that
  bool is_virgin_ = true;  // nothing but white space so far
  bool has_calls_ = false;
};

}  // namespace kvasir::text::out
