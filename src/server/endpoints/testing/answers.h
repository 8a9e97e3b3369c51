// For tests of API formats: hand-made answers, run through a format as a job would do it.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "server/endpoints/api_format.h"

namespace kvasir::server {

inline text::OutputPiece said(std::string text) {
  return {text::OutputKind::content, std::move(text), {}};
}
inline text::OutputPiece thought(std::string text) {
  return {text::OutputKind::reasoning, std::move(text), {}};
}
inline text::OutputPiece called(std::string name, std::string arguments, std::uint32_t index = 0) {
  return {text::OutputKind::tool_call,
          "",
          {index, "call_" + std::to_string(index), std::move(name), std::move(arguments)}};
}

struct Script {
  std::vector<text::OutputPiece> pieces;  // one an event
  std::string finish_reason = "stop";
  std::optional<std::string> stop_string = {};
};

// Ten prompt tokens, of which four were cached; five generated, of which two reasoning.
inline Transcript start_of_answer() {
  Transcript transcript;
  transcript.model = "tiny";
  transcript.created_s = 1714564800;  // 2024-05-01T12:00:00Z
  transcript.prompts = {std::vector<TokenId>(10)};
  transcript.choices.resize(1);
  return transcript;
}

inline ChoiceEnd end_of(const Script& script) {
  ChoiceEnd end;
  end.finish_reason = script.finish_reason;
  end.stop_string = script.stop_string;
  end.n_reasoning_tokens = 2;
  end.outcome.stats.cached_tokens = 4;
  end.outcome.stats.generated_tokens = 5;
  end.outcome.stats.queue_ms = 1;
  end.outcome.stats.prefill_ms = 20;
  end.outcome.stats.decode_ms = 300.5;
  return end;
}

inline void append_block(ChoiceTranscript& choice, const text::OutputPiece& piece) {
  const bool joins = !choice.blocks.empty() && piece.kind != text::OutputKind::tool_call &&
                     choice.blocks.back().kind == piece.kind;
  if (joins)
    choice.blocks.back().text += piece.text;
  else
    choice.blocks.push_back(piece);
}

inline std::string stream(ApiFormat& format, const Script& script) {
  Transcript transcript = start_of_answer();
  std::string out;
  format.begin(transcript, out);
  for (const text::OutputPiece& piece : script.pieces) {
    append_block(transcript.choices.front(), piece);
    StreamEvent event;
    event.pieces = {piece};
    format.event(transcript, event, out);
  }
  StreamEvent last;
  last.is_end = true;
  transcript.choices.front().end = end_of(script);
  format.event(transcript, last, out);
  format.finish(transcript, out);
  return out;
}

inline json::Value whole(ApiFormat& format, const Script& script) {
  Transcript transcript = start_of_answer();
  for (const text::OutputPiece& piece : script.pieces)
    append_block(transcript.choices.front(), piece);
  transcript.choices.front().end = end_of(script);
  return format.whole(transcript);
}

// Random ids as "msg_ID".
inline std::string masked(const std::string& text) {
  static const std::regex id("\\b(msg|resp|rs|fc)_[0-9A-Za-z]{24}");
  return std::regex_replace(text, id, "$1_ID");
}

struct SseEvent {
  std::string name;
  json::Value data;
};

inline std::vector<SseEvent> sse_events(const std::string& bytes) {
  std::vector<SseEvent> out;
  std::string name;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find('\n', at);
    const std::string line = bytes.substr(at, end - at);
    at = end == bytes.npos ? bytes.size() : end + 1;
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: "))
      out.push_back({std::exchange(name, {}), json::parse(line.substr(6)).value_or(nullptr)});
  }
  return out;
}

}  // namespace kvasir::server
