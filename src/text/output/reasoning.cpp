#include "text/output/reasoning.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/output/json_scan.h"

namespace kvasir::text {
namespace out {
namespace {

constexpr std::array kThink{ReasoningPair{"<think>", "</think>"},
                            ReasoningPair{"<|START_THINKING|>", "<|END_THINKING|>"},  // Command
                            ReasoningPair{"<seed:think>", "</seed:think>"},           // Seed-OSS
                            ReasoningPair{"<mm:think>", "</mm:think>"}};              // MiniMax M3
constexpr std::array kBracket{ReasoningPair{"[THINK]", "[/THINK]"}};
constexpr std::array kGemmaPairs{ReasoningPair{"<|channel>", "<channel|>", "thought"}};
constexpr std::array kGranitePairs{ReasoningPair{"<think>", "</think>"}};

// What stands between turns in one template or another: reasoning that a later turn follows is
// over.
constexpr std::array<std::string_view, 14> kTurnSigns{"<|",
                                                      "|>",
                                                      "<｜",
                                                      "[/INST]",
                                                      "]~b]",
                                                      "[e~[",
                                                      "</s>",
                                                      "<sep>",
                                                      "<seed:bos>",
                                                      "<seed:eos>",
                                                      "<end_of_turn>",
                                                      "<start_of_turn>",
                                                      "<SPECIAL_",
                                                      "\n\nAssistant:"};

bool has_turn_sign(std::string_view text) {
  return std::any_of(kTurnSigns.begin(), kTurnSigns.end(), [text](std::string_view sign) {
    return text.find(sign) != std::string_view::npos;
  });
}

}  // namespace

std::span<const ReasoningPair> reasoning_pairs(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::think:
      return kThink;
    case ReasoningFormat::bracket_think:
      return kBracket;
    case ReasoningFormat::gemma:
      return kGemmaPairs;
    case ReasoningFormat::granite:
      return kGranitePairs;
    case ReasoningFormat::none:
    case ReasoningFormat::harmony:
      break;
  }
  return {};
}

}  // namespace out

std::string_view name_of(ReasoningFormat format) noexcept {
  switch (format) {
    case ReasoningFormat::none:
      return "none";
    case ReasoningFormat::think:
      return "think";
    case ReasoningFormat::bracket_think:
      return "bracket_think";
    case ReasoningFormat::gemma:
      return "gemma";
    case ReasoningFormat::harmony:
      return "harmony";
    case ReasoningFormat::granite:
      return "granite";
  }
  return "none";
}

bool starts_in_reasoning(ReasoningFormat format, std::string_view rendered_prompt) {
  const auto is_open = [&](std::string_view open, std::string_view close) {
    const std::size_t at = rendered_prompt.rfind(open);
    if (at == std::string_view::npos) return false;
    const std::string_view rest = rendered_prompt.substr(at + open.size());
    return rest.find(close) == std::string_view::npos && !out::has_turn_sign(rest);
  };
  if (format == ReasoningFormat::harmony) {
    return is_open("<|channel|>analysis<|message|>", "<|end|>");
  }
  const auto pairs = out::reasoning_pairs(format);
  return std::any_of(pairs.begin(), pairs.end(), [&](const out::ReasoningPair& pair) {
    return is_open(std::string(pair.open) + std::string(pair.after_open), pair.close);
  });
}

}  // namespace kvasir::text
