// The tools of a request and what their schemas say about a parameter's value (TXT-42).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "json/json.h"

namespace kvasir::text::out {

class ToolSet {
 public:
  explicit ToolSet(json::Array tools);  // OpenAI's shape; entries without a name are left out

  bool empty() const { return schemas_.empty(); }
  bool has(std::string_view name) const { return schemas_.contains(std::string(name)); }

  // What the model wrote for a parameter, as JSON text: verbatim where the schema says string, else
  // the JSON it is, else a string.
  std::string value_json(std::string_view tool, std::string_view key, std::string_view text) const;
  bool is_string(std::string_view tool, std::string_view key) const;  // nothing but a string

 private:
  const json::Value* schema_of(std::string_view tool, std::string_view key) const;

  std::unordered_map<std::string, json::Value> schemas_;  // by name: "parameters"
};

// `text` as one of the types that `schema` allows; `root` resolves its "$ref"s. Null: anything.
std::string schema_value_json(std::string_view text,
                              const json::Value* schema,
                              const json::Value* root);

// A call's arguments, written in the order in which they come.
class Arguments {
 public:
  void add(std::string_view key, std::string_view value_json);
  std::string take() &&;

 private:
  std::string out_ = "{";
};

}  // namespace kvasir::text::out
