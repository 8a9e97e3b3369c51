// Calls written as JSON: {"name": …, "arguments": {…}}, alone or in an array.
#pragma once

#include <string_view>
#include <vector>

#include "text/output/program.h"

namespace kvasir::text::out {

// One object or an array of them, all good or none taken. "tool_name" does for "name", "parameters"
// for "arguments"; arguments may be a string that holds the object, null or absent.
bool build_json_calls(std::string_view json, const ToolSet& tools, std::vector<ParsedCall>& calls);
// `arguments`: the text of an object, or nothing for an object without members.
bool build_named_call(std::string_view name,
                      std::string_view arguments,
                      const ToolSet& tools,
                      std::vector<ParsedCall>& calls);

}  // namespace kvasir::text::out
