#include "server/endpoints/anthropic_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "server/endpoints/state.h"

namespace kvasir::server {
namespace {

// Names of other APIs for what Anthropic's fields say, and what its surface does not have.
constexpr std::array<std::string_view, 9> kNotOurs{
    "messages",     "system",     "tools",
    "stop",         "logit_bias", "logprobs",
    "top_logprobs", "n_predict",  "max_completion_tokens"};

// Client tools in OpenAI's shape. Those that the server would run have another `type`.
json::Array client_tools(BodyReader& in) {
  json::Array out;
  const json::Array* tools = in.array("tools");
  for (std::size_t i = 0; tools && i < tools->size(); ++i) {
    const json::Value& tool = (*tools)[i];
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (tool.string_or("type", "custom") != "custom") continue;
    const std::string name = tool.string_or("name", "");
    const json::Value* schema = tool.find("input_schema");
    if (name.empty()) in.fail(at + ".name must be a non-empty string", "tools");
    if (!schema || !schema->is_object())
      in.fail(at + ".input_schema must be of type dict", "tools");
    if (!in.ok()) return out;
    json::Object function{{"name", name}};
    if (const json::Value* text = tool.find("description"); text && text->is_string())
      function["description"] = *text;
    function["parameters"] = *schema;
    out.push_back(json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

// Anthropic's tool_choice as OpenAI's; null: the model decides.
json::Value openai_tool_choice(BodyReader& in, bool has_tools) {
  const json::Object* choice = in.object("tool_choice");
  if (!choice) return nullptr;
  const json::Value whole = *choice;
  const std::string type = whole.string_or("type", "");
  if (type == "auto") return nullptr;
  if (type == "none") return "none";
  if (type == "tool") {
    return json::Object{{"type", "function"},
                        {"function", json::Object{{"name", whole.string_or("name", "")}}}};
  }
  if (type != "any")
    in.fail("tool_choice.type must be auto, any, tool or none", "tool_choice");
  else if (!has_tools)
    in.fail("tool_choice any needs tools", "tool_choice");
  return "required";
}

void read_anthropic_tools(BodyReader& in,
                          GenerateRequest& out,
                          std::vector<std::string>& warnings) {
  json::Array tools = client_tools(in);
  json::Value choice = openai_tool_choice(in, !tools.empty());
  bool is_parallel = true;
  if (const json::Object* field = in.object("tool_choice"))
    is_parallel = !json::Value(*field).bool_or("disable_parallel_tool_use", false);
  if (!in.ok()) return;
  const json::Value translated = json::Object{{"tools", std::move(tools)},
                                              {"tool_choice", std::move(choice)},
                                              {"parallel_tool_calls", is_parallel}};
  BodyReader inner(translated);
  read_tools(inner, out, warnings);
  if (!inner.ok()) in.fail(inner.error());
}

void read_thinking(BodyReader& in, GenerateRequest& out) {
  const json::Object* thinking = in.object("thinking");
  if (!thinking) return;
  const json::Value whole = *thinking;
  const std::string type = whole.string_or("type", "");
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return in.fail("thinking.type must be enabled, disabled or adaptive", "thinking");
  const json::Value* budget = whole.find("budget_tokens");
  if (budget && !budget->is_null() && !budget->is_int())
    return in.fail("thinking.budget_tokens must be of type int", "thinking");
  out.template_variables["enable_thinking"] = type != "disabled";
  if (type == "enabled" && budget && budget->is_int())
    out.reasoning_budget = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(*budget->as_int(), 0, std::numeric_limits<std::int32_t>::max()));
}

// output_config: how hard to think, and the form of the answer.
void read_output_config(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings) {
  refuse_grammars(in);
  const json::Object* config = in.object("output_config");
  if (!config) return;
  const json::Value whole = *config;
  const std::string effort = whole.string_or("effort", "");
  if (!effort.empty()) out.template_variables["reasoning_effort"] = effort;
  const json::Value* format = whole.find("format");
  if (!format || format->is_null()) return;
  const json::Value* schema = format->find("schema");
  if (format->string_or("type", "") != "json_schema" || !schema || !schema->is_object())
    return in.fail("output_config.format must be a json_schema with a schema", "output_config");
  const json::Value translated = json::Object{
      {"response_format",
       json::Object{{"type", "json_schema"}, {"json_schema", json::Object{{"schema", *schema}}}}}};
  BodyReader inner(translated);
  read_output_form(inner, out, warnings);
}

// The answer goes on with a last message of the assistant.
void read_prefill(BodyReader& in, GenerateRequest& out) {
  if (!in.ok() || out.messages.back().string_or("role", "") != "assistant") return;
  if (out.messages.back().find("tool_calls"))
    return in.fail("messages: the last tool_use has no tool_result", "messages");
  out.continue_final_message = true;
}

}  // namespace

void read_anthropic_prompt(BodyReader& in,
                           const ServerState& state,
                           GenerateRequest& out,
                           std::vector<std::string>& warnings) {
  out.messages = read_anthropic_messages(in, state.signer);
  read_template_variables(in, state, out);
  read_anthropic_tools(in, out, warnings);
  read_thinking(in, out);
  read_prefill(in, out);
  read_output_config(in, out, warnings);
  out.splits_reasoning = state.options.reasoning_field != "none";
}

bool read_anthropic_sampling(BodyReader& in, const Engine& engine, GenerateRequest& out) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (!in.find("max_tokens")) in.fail("max_tokens is required", "max_tokens");
  in.integer("max_tokens", 0, 0, kMost);
  const json::Array* stops = in.array("stop_sequences");
  if (stops && !std::all_of(stops->begin(), stops->end(),
                            [](const json::Value& stop) { return stop.is_string(); }))
    in.fail("stop_sequences must be a list of strings", "stop_sequences");
  if (!in.ok()) return false;
  json::Object fields;
  for (const auto& [name, value] : *in.body().as_object()) {
    if (std::find(kNotOurs.begin(), kNotOurs.end(), name) == kNotOurs.end())
      fields.push_back(name, value);
  }
  if (stops) fields["stop"] = *stops;
  const json::Value translated = std::move(fields);
  BodyReader inner(translated);
  const RequestSampling sampling = read_sampling(inner, engine, Surface::chat, out);
  if (!inner.ok()) in.fail(inner.error());
  return sampling.stream;
}

}  // namespace kvasir::server
