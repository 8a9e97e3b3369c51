// The tool formats (TXT-41): a file each, and a line each in tool_format.cpp's list.
#pragma once

#include <span>
#include <string_view>

#include "text/output/program.h"
#include "text/output_parser.h"

namespace kvasir::text::out {

struct FormatSpec {
  ToolFormat format = ToolFormat::none;
  std::string_view name = {};
  // The number of a marker in `steps` is its place here. At most 32.
  std::span<const std::string_view> markers = {};
  std::uint32_t openers = 0;  // bits of the markers that begin a region
  Region::Format region = {};
  bool opens_at_brace = false;  // a '{' as the first thing of the output begins a region as well
  // Special tokens that are parts of longer markers: read as their text.
  std::span<const std::string_view> spelled = {};
  std::size_t n_id_characters = 24;
  std::string_view id_prefix = "call_";
};

extern const FormatSpec kGemma4, kHermes, kQwenXml, kMinicpm, kLlama3, kMistral, kDeepseek, kKimi,
    kGlm, kMinimax, kCohere, kGranite, kLfm2, kHarmony;

std::span<const FormatSpec* const> tool_formats();      // in the order of ToolFormat
const FormatSpec* find_tool_format(ToolFormat format);  // null: none

}  // namespace kvasir::text::out
