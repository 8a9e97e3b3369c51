#include "text/output/json_calls.h"

#include "json/json.h"

namespace kvasir::text::out {
namespace {

// Text of a valid JSON string, decoded.
std::string string_value(std::string_view json) {
  const auto value = json::parse(json);
  return value && value->is_string() ? *value->as_string() : std::string();
}

bool build_one(std::string_view object, const ToolSet& tools, std::vector<ParsedCall>& calls) {
  if (object.empty() || object.front() != '{') return false;
  std::string name;
  std::string_view arguments;
  JsonMembers members = json_members(object);
  if (members.size() > 64) return false;
  for (const auto& [key, value] : members) {
    if (key == "function" && value.starts_with('{')) return build_one(value, tools, calls);
    if (key == "name" || key == "tool_name" || key == "function") name = string_value(value);
    if (key == "arguments" || key == "parameters") arguments = value;
  }
  if (arguments == "null") arguments = {};
  if (!arguments.starts_with('"')) return build_named_call(name, arguments, tools, calls);
  return build_named_call(name, string_value(arguments), tools, calls);
}

}  // namespace

bool build_named_call(std::string_view name,
                      std::string_view arguments,
                      const ToolSet& tools,
                      std::vector<ParsedCall>& calls) {
  const std::string_view text = trim(arguments);
  if (!tools.has(name)) return false;
  if (text.empty()) {
    calls.push_back({std::string(name), "{}"});
    return true;
  }
  if (text.front() != '{' || !is_valid_json(text)) return false;
  calls.push_back({std::string(name), json_compact(text)});
  return true;
}

bool build_json_calls(std::string_view json, const ToolSet& tools, std::vector<ParsedCall>& calls) {
  const std::string_view text = trim(json);
  if (!is_valid_json(text)) return false;
  if (text.front() == '{') return build_one(text, tools, calls);
  if (text.front() != '[') return false;
  for (const std::string_view item : json_items(text)) {
    if (!build_one(item, tools, calls)) return false;
  }
  return true;
}

}  // namespace kvasir::text::out
