#include "server/endpoints/transcript.h"

#include <algorithm>

namespace kvasir::server {
namespace {

std::string text_of(const std::vector<text::OutputPiece>& blocks, text::OutputKind kind) {
  std::string out;
  for (const text::OutputPiece& block : blocks) {
    if (block.kind == kind) out += block.text;
  }
  return out;
}

}  // namespace

std::string ChoiceTranscript::content() const { return text_of(blocks, text::OutputKind::content); }
std::string ChoiceTranscript::reasoning() const {
  return text_of(blocks, text::OutputKind::reasoning);
}

std::vector<text::ToolCall> ChoiceTranscript::tool_calls() const {
  std::vector<text::ToolCall> out;
  for (const text::OutputPiece& block : blocks) {
    if (block.kind == text::OutputKind::tool_call) out.push_back(block.call);
  }
  return out;
}

Usage Transcript::usage() const {
  Usage usage;
  for (const auto& prompt : prompts) usage.prompt_tokens += prompt.size();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::optional<ChoiceEnd>& end = choices[i].end;
    if (!end) continue;
    const Stats& stats = end->outcome.stats;
    if (i % n_per_prompt == 0) usage.cached_tokens += stats.cached_tokens;
    usage.completion_tokens += stats.generated_tokens;
    usage.reasoning_tokens += end->n_reasoning_tokens;
    usage.draft_tokens += stats.draft_tokens;
    usage.draft_accepted += stats.draft_accepted;
    usage.prompt_ms = std::max(usage.prompt_ms, stats.prefill_ms);
    usage.predicted_ms = std::max(usage.predicted_ms, stats.decode_ms);
  }
  return usage;
}

}  // namespace kvasir::server
