// The markers around reasoning, by family.
#pragma once

#include <span>
#include <string_view>

#include "text/output_parser.h"

namespace kvasir::text::out {

struct ReasoningPair {
  std::string_view open, close;
  std::string_view after_open = {};  // text that belongs to the opening marker
};

// Empty for none and for harmony, whose markers name channels.
std::span<const ReasoningPair> reasoning_pairs(ReasoningFormat format);

inline constexpr std::string_view kResponseOpen = "<response>", kResponseClose = "</response>";

}  // namespace kvasir::text::out
