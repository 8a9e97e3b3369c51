#include "server/endpoints/parted_format.h"

#include <utility>

namespace kvasir::server {

void PartedFormat::event(const Transcript&, const StreamEvent& event, std::string& out) {
  for (const text::OutputPiece& piece : event.pieces) add(piece, out);
}

void PartedFormat::add_all(const ChoiceTranscript& choice, std::string& out) {
  for (const text::OutputPiece& block : choice.blocks) add(block, out);
}

void PartedFormat::add(const text::OutputPiece& piece, std::string& out) {
  const bool is_call = piece.kind == text::OutputKind::tool_call;
  if (!is_call && piece.text.empty()) return;
  if (!is_call && open_ == piece.kind) return add_text(piece.kind, piece.text, out);
  if (is_call || held_kind_ != piece.kind) held_.clear();
  if (!is_call) {
    held_kind_ = piece.kind;
    held_ += piece.text;
    if (held_.find_first_not_of(" \t\r\n") == std::string::npos) return;
  }
  if (open_) close_part(*std::exchange(open_, std::nullopt), out);
  has_parts_ = true;
  if (is_call) return add_call(piece.call, out);
  open_ = piece.kind;
  open_part(piece.kind, out);
  add_text(piece.kind, std::exchange(held_, {}), out);
}

void PartedFormat::close_last(std::string& out) {
  if (!has_parts_ && !held_.empty()) {
    open_ = held_kind_;
    open_part(held_kind_, out);
    add_text(held_kind_, held_, out);
  }
  if (open_) close_part(*std::exchange(open_, std::nullopt), out);
}

json::Value arguments_object(const text::ToolCall& call) {
  auto parsed = json::parse(call.arguments);
  if (parsed && parsed->is_object()) return *std::move(parsed);
  return json::Object{};
}

}  // namespace kvasir::server
