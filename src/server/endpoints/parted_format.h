// PartedFormat: what APIs share whose answers are lists of typed parts (Anthropic's blocks,
// Responses' items): where parts open and close. A run of text of one kind is one part, a tool call
// is one by itself. White space alone between parts, as models write around calls, is left out, so
// it is held back until more follows. Whole answers take the same way as streamed ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/endpoints/api_format.h"

namespace kvasir::server {

class PartedFormat : public ApiFormat {
 public:
  void event(const Transcript& transcript, const StreamEvent& event, std::string& out) final;

 protected:
  // Text parts: open, text (never empty) one or more times, close. `kind` is that of the open part.
  virtual void open_part(text::OutputKind kind, std::string& out) = 0;
  virtual void add_text(text::OutputKind kind, std::string_view text, std::string& out) = 0;
  virtual void close_part(text::OutputKind kind, std::string& out) = 0;
  virtual void add_call(const text::ToolCall& call, std::string& out) = 0;

  void add(const text::OutputPiece& piece, std::string& out);
  void add_all(const ChoiceTranscript& choice, std::string& out);
  void close_last(std::string& out);  // at the answer's end, once
  std::optional<text::OutputKind> open_kind() const noexcept { return open_; }

 private:
  std::optional<text::OutputKind> open_;
  std::string held_;  // white space that a part may begin with
  text::OutputKind held_kind_ = text::OutputKind::content;
  bool has_parts_ = false;
};

// A call's arguments as an object; {} when the text is none.
json::Value arguments_object(const text::ToolCall& call);

}  // namespace kvasir::server
