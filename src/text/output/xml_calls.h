// Calls written as a name and a list of parameters in tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/output/program.h"

namespace kvasir::text::out {

inline constexpr std::uint8_t kNameSlot = 1, kKeySlot = 2, kValueSlot = 3;

// How one format writes names and values; what is not set is taken as it stands.
struct TagStyle {
  // A name as captured → the name.
  std::string (*name)(std::string_view captured) = nullptr;
  // A value as captured → its text.
  std::string (*value)(std::string_view captured) = nullptr;
};

// From captures: a name, then keys and values in turn; each further name is one more call.
bool build_tagged_call(const BuildInput& in, const TagStyle& style, std::vector<ParsedCall>& calls);

std::string unquote(std::string_view attribute);            // `"n"` → n
std::string without_outer_newlines(std::string_view text);  // at most one at each end
std::string decode_xml(std::string_view text);  // entities decoded, CDATA sections verbatim

}  // namespace kvasir::text::out
