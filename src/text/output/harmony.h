// What the two parts of harmony share: the splitter of the channels and the tool format.
#pragma once

#include <string_view>

namespace kvasir::text::out {

// The marker that the splitter puts before a message with a recipient; it has no text.
inline constexpr std::string_view kHarmonyCall = "";

// Of a header, markers as their text: the word behind "to="; empty: none.
std::string_view harmony_recipient(std::string_view header);

}  // namespace kvasir::text::out
