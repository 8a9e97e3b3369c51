#include "server/endpoints/responses_request.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "server/endpoints/state.h"

namespace kvasir::server {
namespace {

// The function tools, flat as they were sent; what the server would run itself is dropped.
json::Array function_tools(BodyReader& in) {
  json::Array out;
  const json::Array* tools = in.array("tools");
  for (std::size_t i = 0; tools && i < tools->size(); ++i) {
    const json::Value& tool = (*tools)[i];
    const std::string at = "tools[" + std::to_string(i) + "]";
    const std::string type = tool.string_or("type", "");
    if (type.empty()) in.fail(at + ".type must be a non-empty string", "tools");
    if (type == "function" && tool.string_or("name", "").empty())
      in.fail(at + ".name must be a non-empty string", "tools");
    const json::Value* parameters = tool.find("parameters");
    if (type == "function" && parameters && !parameters->is_null() && !parameters->is_object())
      in.fail(at + ".parameters must be of type dict", "tools");
    if (!in.ok()) return out;
    if (type != "function") continue;
    json::Object flat = *tool.as_object();
    for (const char* field : {"parameters", "strict"}) {
      if (!flat.find(field)) flat[field] = nullptr;
    }
    out.push_back(std::move(flat));
  }
  return out;
}

json::Array nested_tools(const json::Array& flat_tools) {
  json::Array out;
  for (const json::Value& flat : flat_tools) {
    json::Object function;
    for (const char* field : {"name", "description", "parameters", "strict"}) {
      const json::Value* value = flat.find(field);
      if (value && !value->is_null()) function[field] = *value;
    }
    out.push_back(json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

// {"type": "allowed_tools", "mode", "tools"}: the others are not shown.
json::Value keep_allowed(const json::Value& choice, json::Array& tools) {
  json::Array kept;
  const json::Value* allowed = choice.find("tools");
  const json::Array* list = allowed ? allowed->as_array() : nullptr;
  for (const json::Value& tool : tools) {
    const std::string name = tool.find("function")->string_or("name", "");
    bool is_allowed = false;
    for (std::size_t i = 0; list && i < list->size(); ++i)
      is_allowed = is_allowed || (*list)[i].string_or("name", "") == name;
    if (is_allowed) kept.push_back(tool);
  }
  tools = std::move(kept);
  return choice.string_or("mode", "auto");
}

void read_response_tools(BodyReader& in, ResponseRequest& out, std::vector<std::string>& warnings) {
  const json::Array flat = function_tools(in);
  json::Array tools = nested_tools(flat);
  const json::Value* field = in.find("tool_choice");
  json::Value choice = field ? *field : json::Value("auto");
  out.head["tools"] = flat;
  out.head["tool_choice"] = choice;
  const std::string type = choice.string_or("type", "");
  if (type == "allowed_tools") {
    choice = keep_allowed(choice, tools);
  } else if (type == "function") {
    choice = json::Object{{"type", "function"},
                          {"function", json::Object{{"name", choice.string_or("name", "")}}}};
  }
  const bool is_parallel = in.boolean("parallel_tool_calls", true);
  out.head["parallel_tool_calls"] = is_parallel;
  if (!in.ok()) return;
  const json::Value translated = json::Object{{"tools", std::move(tools)},
                                              {"tool_choice", std::move(choice)},
                                              {"parallel_tool_calls", is_parallel}};
  BodyReader inner(translated);
  read_tools(inner, out.generate, warnings);
  if (!inner.ok()) in.fail(inner.error());
}

// text.format is response_format without a level of nesting.
void read_text_form(BodyReader& in, ResponseRequest& out, std::vector<std::string>& warnings) {
  refuse_grammars(in);
  json::Value format = json::Object{{"type", "text"}};
  if (const json::Object* text = in.object("text")) {
    const json::Value* own = text->find("format");
    if (own && !own->is_null()) format = *own;
  }
  if (!format.is_object()) return in.fail("text.format must be of type dict", "text");
  out.head["text"] = json::Object{{"format", format}};
  json::Object nested{{"type", format.string_or("type", "")}};
  if (format.string_or("type", "") == "json_schema") nested["json_schema"] = format;
  const json::Value translated = json::Object{{"response_format", std::move(nested)}};
  BodyReader inner(translated);
  read_output_form(inner, out.generate, warnings);
  if (inner.ok()) return;
  constexpr std::string_view kTheirs = "response_format";
  ApiError error = inner.error();
  if (error.message.starts_with(kTheirs)) error.message.replace(0, kTheirs.size(), "text.format");
  error.param = "text.format";
  in.fail(std::move(error));
}

void read_reasoning_effort(BodyReader& in, const ServerState& state, ResponseRequest& out) {
  json::Object translated;
  json::Value effort;
  if (const json::Object* reasoning = in.object("reasoning")) {
    const json::Value* own = reasoning->find("effort");
    if (own && !own->is_null() && !own->is_string())
      return in.fail("reasoning.effort must be of type str", "reasoning");
    if (own) effort = *own;
  }
  out.head["reasoning"] = json::Object{{"effort", effort}, {"summary", nullptr}};
  translated["reasoning_effort"] = effort;
  if (const json::Value* own = in.find("chat_template_kwargs"))
    translated["chat_template_kwargs"] = *own;
  const json::Value body = std::move(translated);
  BodyReader inner(body);
  read_template_variables(inner, state, out.generate);
  if (!inner.ok()) in.fail(inner.error());
}

// A float as a reader would write it.
double shown(float value) { return std::round(static_cast<double>(value) * 1e6) / 1e6; }

void read_response_sampling(BodyReader& in, const Engine& engine, ResponseRequest& out) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const json::Value* limit = in.find("max_output_tokens");
  in.integer("max_output_tokens", 1, 1, kMost);
  if (!in.ok()) return;
  json::Object fields;
  for (const char* name : {"temperature", "top_p", "top_k", "min_p", "seed", "stream", "stop",
                           "presence_penalty", "frequency_penalty", "repetition_penalty",
                           "ignore_eos", "cache", "timeout_ms", "adapter", "adapters"}) {
    if (const json::Value* value = in.find(name)) fields[name] = *value;
  }
  if (limit) fields["max_tokens"] = *limit;
  const json::Value translated = std::move(fields);
  BodyReader inner(translated);
  const RequestSampling sampling = read_sampling(inner, engine, Surface::chat, out.generate);
  if (!inner.ok()) return in.fail(inner.error());
  out.stream = sampling.stream;
  out.head["max_output_tokens"] = limit ? *limit : json::Value();
  out.head["temperature"] = shown(sampling.options.temperature);
  out.head["top_p"] = shown(sampling.options.top_p);
}

// What the answer only repeats, and what would change its meaning if it were ignored.
void read_echoes(BodyReader& in, ResponseRequest& out) {
  if (in.boolean("background", false))
    in.fail("background responses are not supported", "background");
  for (const char* field : {"conversation", "prompt"}) {
    if (in.find(field)) in.fail(std::string(field) + " is not supported", field);
  }
  const json::Object* metadata = in.object("metadata");
  const std::string truncation = in.string("truncation", "disabled");
  if (truncation != "disabled" && truncation != "auto")
    in.fail("truncation must be disabled or auto", "truncation");
  const std::string user = in.string("user", "");
  out.head["metadata"] = metadata ? *metadata : json::Object{};
  out.head["truncation"] = truncation;
  out.head["user"] = user.empty() ? json::Value() : json::Value(user);
}

// Instructions are a system message, joined with one that is there already: templates take one.
void lead_with(json::Array& messages, const std::string& instructions) {
  const std::string role = messages.empty() ? "" : messages.front().string_or("role", "");
  const json::Value* content = messages.empty() ? nullptr : messages.front().find("content");
  if ((role == "system" || role == "developer") && content && content->is_string()) {
    const std::string both = instructions + "\n\n" + *content->as_string();
    (*messages.front().as_object())["content"] = both;
  } else {
    messages.insert(messages.begin(), json::Object{{"role", "system"}, {"content", instructions}});
  }
}

void read_conversation(BodyReader& in, ServerState& state, ResponseRequest& out) {
  const std::string previous = in.string("previous_response_id", "");
  out.head["previous_response_id"] = previous.empty() ? json::Value() : json::Value(previous);
  json::Array conversation;
  if (!previous.empty()) {
    auto stored = state.responses.get(previous, std::chrono::steady_clock::now());
    if (!stored) {
      ApiError error = response_not_found(previous);
      error.param = "previous_response_id";
      return in.fail(std::move(error));
    }
    conversation = std::move(stored->messages);
  }
  out.conversation = read_response_input(in, std::move(conversation));
  out.generate.messages = out.conversation;
  const std::string instructions = in.string("instructions", "");
  out.head["instructions"] = instructions.empty() ? json::Value() : json::Value(instructions);
  if (!instructions.empty()) lead_with(out.generate.messages, instructions);
}

// Everything in the order in which an answer shows it.
json::Object empty_head() {
  json::Object head{{"id", nullptr}, {"object", "response"}, {"created_at", 0}};
  for (const char* field : {"status",
                            "background",
                            "error",
                            "incomplete_details",
                            "instructions",
                            "max_output_tokens",
                            "max_tool_calls",
                            "model",
                            "output",
                            "parallel_tool_calls",
                            "previous_response_id",
                            "reasoning",
                            "store",
                            "temperature",
                            "text",
                            "tool_choice",
                            "tools",
                            "top_p",
                            "truncation",
                            "usage",
                            "user",
                            "metadata"})
    head[field] = nullptr;
  head["background"] = false;
  return head;
}

}  // namespace

ResponseRequest read_response_request(BodyReader& in,
                                      ServerState& state,
                                      std::vector<std::string>& warnings) {
  ResponseRequest out;
  out.head = empty_head();
  read_conversation(in, state, out);
  read_response_sampling(in, *state.engine.load(), out);
  read_reasoning_effort(in, state, out);
  read_response_tools(in, out, warnings);
  read_text_form(in, out, warnings);
  read_echoes(in, out);
  out.is_stored = in.boolean("store", true);
  out.head["store"] = out.is_stored;
  out.generate.splits_reasoning = state.options.reasoning_field != "none";
  return out;
}

ApiError response_not_found(std::string_view id) {
  ApiError error = bad_request("no response '" + std::string(id) + "' is stored here");
  error.status = 404;
  error.code = "response_not_found";
  return error;
}

}  // namespace kvasir::server
