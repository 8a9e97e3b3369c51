#include "text/output/tool_set.h"

#include <algorithm>
#include <optional>

#include "text/output/json_scan.h"

namespace kvasir::text::out {
namespace {

struct Types {
  bool string = false, number = false, boolean = false, null = false, array = false, object = false;

  bool none() const { return !string && !number && !boolean && !null && !array && !object; }
  bool only_string() const { return string && !number && !boolean && !null && !array && !object; }
  void add_name(std::string_view name) {
    if (name == "string") string = true;
    if (name == "number" || name == "integer") number = true;
    if (name == "boolean") boolean = true;
    if (name == "null") null = true;
    if (name == "array") array = true;
    if (name == "object") object = true;
  }
  void add_type_of(const json::Value& v) {
    if (v.is_string()) string = true;
    if (v.is_number()) number = true;
    if (v.is_bool()) boolean = true;
    if (v.is_null()) null = true;
    if (v.is_array()) array = true;
    if (v.is_object()) object = true;
  }
  bool allows(const json::Value& v) const {
    return (v.is_number() && number) || (v.is_bool() && boolean) || (v.is_null() && null) ||
           (v.is_array() && array) || (v.is_object() && object) || (v.is_string() && string);
  }
};

// "#/$defs/Name" within root.
const json::Value* resolve(const std::string& ref, const json::Value* root) {
  if (root == nullptr || !ref.starts_with("#/")) return nullptr;
  const json::Value* at = root;
  std::string_view rest = std::string_view(ref).substr(2);
  while (at != nullptr && !rest.empty()) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    at = at->find(rest.substr(0, slash));
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  return at;
}

class TypeReader {
 public:
  explicit TypeReader(const json::Value* root) : root_(root) {}

  void read(const json::Value* schema, int depth) {
    if (schema == nullptr || depth > 8 || --n_left_ < 0) return;
    if (const json::Value* ref = schema->find("$ref"); ref != nullptr && ref->is_string()) {
      read(resolve(*ref->as_string(), root_), depth + 1);
    }
    if (schema->bool_or("nullable", false)) types_.null = true;
    if (const json::Value* type = schema->find("type")) {
      add_names(*type);
    } else if (const json::Value* values = schema->find("enum"); values && values->is_array()) {
      for (const json::Value& v : *values->as_array()) types_.add_type_of(v);
    } else if (const json::Value* value = schema->find("const")) {
      types_.add_type_of(*value);
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const json::Value* parts = schema->find(key);
      if (parts == nullptr || !parts->is_array()) continue;
      for (const json::Value& part : *parts->as_array()) read(&part, depth + 1);
    }
  }
  Types types() const { return types_; }

 private:
  void add_names(const json::Value& type) {
    if (type.is_string()) types_.add_name(*type.as_string());
    if (!type.is_array()) return;
    for (const json::Value& name : *type.as_array()) {
      if (name.is_string()) types_.add_name(*name.as_string());
    }
  }

  const json::Value* root_;
  Types types_;
  int n_left_ = 1000;  // schema nodes: references may fan out without end
};

Types types_of(const json::Value* schema, const json::Value* root) {
  TypeReader reader(root);
  reader.read(schema, 0);
  return reader.types();
}

std::string quoted(std::string_view text) {
  std::string out;
  json::append_quoted(out, text);
  return out;
}

// Templates that print arguments as Python does teach the model these spellings.
std::optional<std::string> python_constant(std::string_view text, const Types& types) {
  if (types.boolean && text == "True") return "true";
  if (types.boolean && text == "False") return "false";
  if (types.null && text == "None") return "null";
  return std::nullopt;
}

}  // namespace

std::string schema_value_json(std::string_view text,
                              const json::Value* schema,
                              const json::Value* root) {
  const Types types = types_of(schema, root);
  if (types.only_string()) return quoted(text);
  const std::string_view trimmed = trim(text);
  if (auto constant = python_constant(trimmed, types)) return *std::move(constant);
  const auto value = json::parse(trimmed, {.max_depth = kMaxJsonDepth});
  if (!value) return quoted(text);
  // Where a string is one choice among others, only what clearly is another one is taken as such.
  if (types.string && (value->is_string() || !types.allows(*value))) return quoted(text);
  return json_compact(trimmed);
}

ToolSet::ToolSet(json::Array tools) {
  for (json::Value& tool : tools) {
    const json::Value* function = tool.find("function");
    if (function == nullptr) function = &tool;
    const std::string name = function->string_or("name", "");
    if (name.empty()) continue;
    const json::Value* parameters = function->find("parameters");
    schemas_.insert_or_assign(name, parameters != nullptr ? *parameters : json::Value());
  }
}

const json::Value* ToolSet::schema_of(std::string_view tool, std::string_view key) const {
  const auto found = schemas_.find(std::string(tool));
  if (found == schemas_.end()) return nullptr;
  if (const json::Value* properties = found->second.find("properties")) {
    if (const json::Value* schema = properties->find(key)) return schema;
  }
  return found->second.find("additionalProperties");
}

std::string ToolSet::value_json(std::string_view tool,
                                std::string_view key,
                                std::string_view text) const {
  const auto found = schemas_.find(std::string(tool));
  const json::Value* root = found == schemas_.end() ? nullptr : &found->second;
  return schema_value_json(text, schema_of(tool, key), root);
}

bool ToolSet::is_string(std::string_view tool, std::string_view key) const {
  const auto found = schemas_.find(std::string(tool));
  if (found == schemas_.end()) return false;
  return types_of(schema_of(tool, key), &found->second).only_string();
}

void Arguments::add(std::string_view key, std::string_view value_json) {
  if (out_.size() > 1) out_ += ',';
  json::append_quoted(out_, key);
  out_ += ':';
  out_ += value_json;
}

std::string Arguments::take() && {
  out_ += '}';
  return std::move(out_);
}

}  // namespace kvasir::text::out
