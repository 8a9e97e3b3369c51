// Calls written as Python: f(a=1, b="x"), one or a list of them. Only keyword arguments with
// literal values: numbers, strings, True, False, None, lists, tuples, dicts.
#pragma once

#include <string_view>
#include <vector>

#include "text/output/program.h"

namespace kvasir::text::out {

// "[f(a=1), g()]" or "f(a=1)". False: not that, or an unknown tool.
bool build_python_calls(std::string_view text,
                        const ToolSet& tools,
                        std::vector<ParsedCall>& calls);

}  // namespace kvasir::text::out
