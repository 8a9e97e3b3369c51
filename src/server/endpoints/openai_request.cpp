#include "server/endpoints/openai_request.h"

#include <algorithm>
#include <utility>

namespace kvasir::server {
namespace {

constexpr std::int64_t kMaxTimeoutMs = 86'400'000;

std::string joined(std::string_view field, std::string_view rest) {
  return std::string(field) + std::string(rest);
}

const json::Value* function_of(const json::Value& tool) {
  const json::Value* function = tool.find("function");
  return function && function->is_object() ? function : nullptr;
}

// What a grammar would have enforced (SAMP-55).
void warn_unenforced(std::vector<std::string>& warnings, std::string_view reason) {
  warnings.push_back("grammar not enforced: " + std::string(reason));
}

bool has_strict_tool(const json::Array& tools) {
  return std::any_of(tools.begin(), tools.end(), [](const json::Value& tool) {
    return function_of(tool)->bool_or("strict", false);
  });
}

void instruct_json(BodyReader& in,
                   const json::Value* schema,
                   bool is_strict,
                   GenerateRequest& out,
                   std::vector<std::string>& warnings) {
  if (is_strict) {
    ApiError error = bad_request(
        "response_format with strict true needs a grammar, which this server does not have",
        "response_format");
    error.code = "unsupported_schema";
    return in.fail(std::move(error));
  }
  std::string text = "Answer with one valid JSON value and nothing else.";
  if (schema) text += " It must follow this JSON schema:\n" + json::write(*schema);
  add_instruction(out.messages, text);
  warn_unenforced(warnings, "the schema was added as an instruction");
}

}  // namespace

void BodyReader::fail(std::string message, std::string_view field) {
  if (!error_) error_ = bad_request(std::move(message), std::string(field));
}

void BodyReader::fail(const Error& error) {
  if (error_) return;
  error_ = to_api_error(error);
  error_->param = error.what.substr(0, error.what.find(' '));
}

const json::Value* BodyReader::find(std::string_view field) const noexcept {
  const json::Value* value = error_ ? nullptr : body_.find(field);
  return value && !value->is_null() ? value : nullptr;
}

bool BodyReader::boolean(std::string_view field, bool other) {
  const json::Value* value = find(field);
  if (!value) return other;
  if (const bool* b = value->as_bool()) return *b;
  fail(joined(field, " must be of type bool"), field);
  return other;
}

std::int64_t BodyReader::integer(std::string_view field,
                                 std::int64_t other,
                                 std::int64_t low,
                                 std::int64_t high) {
  const json::Value* value = find(field);
  if (!value) return other;
  const std::int64_t* i = value->as_int();
  if (!i) {
    fail(joined(field, " must be of type int"), field);
  } else if (*i < low) {
    fail(joined(field, " must be at least ") + std::to_string(low), field);
  } else if (*i > high) {
    fail(joined(field, " must be at most ") + std::to_string(high), field);
  } else {
    return *i;
  }
  return other;
}

std::string BodyReader::string(std::string_view field, std::string_view other) {
  const json::Value* value = find(field);
  if (!value) return std::string(other);
  if (const std::string* s = value->as_string()) return *s;
  fail(joined(field, " must be of type str"), field);
  return std::string(other);
}

const json::Object* BodyReader::object(std::string_view field) {
  const json::Value* value = find(field);
  if (!value) return nullptr;
  const json::Object* object = value->as_object();
  if (!object) fail(joined(field, " must be of type dict"), field);
  return object;
}

const json::Array* BodyReader::array(std::string_view field) {
  const json::Value* value = find(field);
  if (!value) return nullptr;
  const json::Array* array = value->as_array();
  if (!array) fail(joined(field, " must be of type list"), field);
  return array;
}

std::vector<std::string> BodyReader::strings(std::string_view field) {
  const json::Value* value = find(field);
  if (!value) return {};
  if (const std::string* s = value->as_string()) return {*s};
  std::vector<std::string> out;
  const json::Array* list = value->as_array();
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    const std::string* s = (*list)[i].as_string();
    if (!s) {
      list = nullptr;
      break;
    }
    out.push_back(*s);
  }
  if (!list) fail(joined(field, " must be a string or a list of strings"), field);
  return out;
}

RequestSampling read_sampling(BodyReader& in,
                              const Engine& engine,
                              Surface surface,
                              GenerateRequest& out) {
  RequestSampling sampling;
  if (!in.ok()) return sampling;
  auto parsed = engine.sampling_of(in.body(), surface);
  if (!parsed) {
    in.fail(parsed.error());
    return sampling;
  }
  sampling = *std::move(parsed);
  out.sampling = sampling.options;
  out.max_tokens = sampling.max_tokens;
  out.default_max_tokens = sampling.default_max_tokens;
  out.until_context_full = sampling.until_context_full;
  out.stops = in.strings("stop");
  out.uses_cache = in.boolean("cache", true);
  const std::int64_t timeout_ms = in.integer("timeout_ms", 0, 1, kMaxTimeoutMs);
  if (timeout_ms > 0) out.timeout = std::chrono::milliseconds(timeout_ms);
  if (in.find("adapter") || in.find("adapters")) {
    ApiError error = bad_request("no adapter is mounted here", "adapter");
    error.status = 404;
    error.code = "adapter_not_found";
    in.fail(std::move(error));
  }
  return sampling;
}

void BodyReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

namespace {

// tool_choice. A call that only a grammar could force is asked for in words.
void choose_tools(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings) {
  const json::Value* choice = in.find("tool_choice");
  if (!choice) return;
  out.template_variables["tool_choice"] = *choice;  // TXT-28: some templates say it themselves
  const std::string* word = choice->as_string();
  if (word && *word == "auto") return;
  if (word && *word == "none") return out.tools.clear();
  if (word && *word == "required") {
    if (out.tools.empty()) return in.fail("tool_choice required needs tools", "tool_choice");
    add_instruction(out.messages, "Answer with a call of one of the tools.");
    return warn_unenforced(warnings, "tool_choice required was added as an instruction");
  }
  const json::Value* function = function_of(*choice);
  if (!function)
    return in.fail("tool_choice must be none, auto, required or an object with a function",
                   "tool_choice");
  const std::string wanted = function->string_or("name", "");
  json::Array only;
  for (const json::Value& tool : out.tools) {
    if (function_of(tool)->string_or("name", "") == wanted) only.push_back(tool);
  }
  if (only.empty())
    return in.fail("tool_choice names '" + wanted + "', which is not among tools", "tool_choice");
  out.tools = std::move(only);
  add_instruction(out.messages, "Answer with a call of the tool " + wanted + ".");
  warn_unenforced(warnings, "tool_choice was added as an instruction");
}

}  // namespace

void read_tools(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings) {
  out.parallel_tool_calls = in.boolean("parallel_tool_calls", true);
  const json::Array* tools = in.array("tools");
  for (std::size_t i = 0; tools && i < tools->size(); ++i) {
    const json::Value* function = function_of((*tools)[i]);
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (!function) return in.fail(at + " must be an object with a function", "tools");
    const json::Value* name = function->find("name");
    if (!name || !name->as_string() || name->as_string()->empty())
      return in.fail(at + ".function.name must be a non-empty string", "tools");
    const json::Value* parameters = function->find("parameters");
    if (parameters && !parameters->is_null() && !parameters->is_object())
      return in.fail(at + ".function.parameters must be an object", "tools");
  }
  if (tools) out.tools = *tools;
  choose_tools(in, out, warnings);
  if (in.ok() && has_strict_tool(out.tools))
    warn_unenforced(warnings, "arguments of strict tools are not constrained");
}

void refuse_grammars(BodyReader& in) {
  for (const char* form : {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                           "structured_outputs", "grammar", "json_schema"}) {
    if (in.find(form)) return in.fail("grammars are disabled", form);  // SAMP-57
  }
}

void read_output_form(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings) {
  refuse_grammars(in);
  const json::Object* format = in.object("response_format");
  if (!format) return;
  const json::Value whole = *format;
  const std::string type = whole.string_or("type", "");
  if (type == "text") return;
  out.template_variables["response_format"] = whole;  // TXT-28
  if (type == "json_object") return instruct_json(in, nullptr, false, out, warnings);
  if (type != "json_schema")
    return in.fail("response_format.type must be text, json_object or json_schema",
                   "response_format");
  const json::Value* schema = whole.find("json_schema");
  const std::string at = "response_format.json_schema";
  if (!schema || !schema->is_object() || !schema->find("schema"))
    return in.fail(at + " must be an object with a schema", "response_format");
  const json::Value* own = schema->find("schema");
  if (!own->is_object() && !own->is_bool())
    return in.fail(at + ".schema must be of type dict", "response_format");
  const json::Value* strict = schema->find("strict");
  if (strict && !strict->is_null() && !strict->is_bool())
    return in.fail(at + ".strict must be of type bool", "response_format");
  instruct_json(in, own, schema->bool_or("strict", false), out, warnings);
}

void read_template_variables(BodyReader& in, const ServerState& state, GenerateRequest& out) {
  out.template_variables = state.options.template_variables;
  if (const json::Object* own = in.object("chat_template_kwargs")) {
    for (const auto& [name, value] : *own) out.template_variables[name] = value;
  }
  if (const json::Array* documents = in.array("documents"))
    out.template_variables["documents"] = *documents;
  const std::string effort = in.string("reasoning_effort", "");
  if (effort.empty()) return;
  out.template_variables["reasoning_effort"] = effort;
  out.template_variables["enable_thinking"] = effort != "none";
}

void add_instruction(json::Array& messages, const std::string& text) {
  const std::string role = messages.empty() ? "" : messages.front().string_or("role", "");
  const bool has_system = role == "system" || role == "developer";
  const json::Value* content = has_system ? messages.front().find("content") : nullptr;
  const std::string* old = content ? content->as_string() : nullptr;
  if (content && content->is_array()) {
    json::Array parts = *content->as_array();
    parts.push_back(json::Object{{"type", "text"}, {"text", "\n\n" + text}});
    (*messages.front().as_object())["content"] = std::move(parts);
  } else if (old) {
    const std::string both = *old + "\n\n" + text;
    (*messages.front().as_object())["content"] = both;
  } else {
    messages.insert(messages.begin(), json::Object{{"role", "system"}, {"content", text}});
  }
}

json::Array with_both_reasoning_names(json::Array messages) {
  for (json::Value& message : messages) {
    json::Object* object = message.as_object();
    if (!object) continue;
    const json::Value* reasoning = object->find("reasoning");
    const json::Value* content = object->find("reasoning_content");
    if (reasoning && reasoning->is_string() && !content) {
      json::Value copy = *reasoning;
      (*object)["reasoning_content"] = std::move(copy);
    } else if (content && content->is_string() && !reasoning) {
      json::Value copy = *content;
      (*object)["reasoning"] = std::move(copy);
    }
  }
  return messages;
}

}  // namespace kvasir::server
