// Small readers shared by the parts of tokenizer.json.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "json/json.h"
#include "text/tokenizer/regex.h"

namespace kvasir::text::tok {

// Calls `step` with every leaf of a possibly nested {"type": "Sequence", list_name: [...]}, in
// order. null: none. Errors: a value without "type", nesting above 16, or more than 256 steps.
Status for_each_step(
    const json::Value& spec,
    std::string_view list_name,
    const std::function<Status(const json::Value&, const std::string& type)>& step);

// {"pattern": {"String": s} | {"Regex": r} | s}. Error: no such member, or a pattern that does not
// compile.
Result<Regex> parse_pattern(const json::Value& spec);

Result<std::string> decode_base64(std::string_view text);  // standard alphabet, padding optional

// The only character of a member like "replacement": "▁". Error: not exactly one character.
Result<std::string> one_character(const json::Value& spec,
                                  std::string_view member,
                                  std::string_view other);

}  // namespace kvasir::text::tok
