#include "server/endpoints/ollama_request.h"

#include <limits>
#include <utility>

#include "server/endpoints/state.h"

namespace kvasir::server {
namespace {

// options → sampling. Fields about loading (num_ctx, num_gpu…) are none of a request's business.
void read_options(BodyReader& in, const Engine& engine, GenerateRequest& out) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const json::Object* options = in.object("options");
  const json::Value own = options ? *options : json::Object{};
  BodyReader reader(own);
  json::Object fields;
  for (const char* name :
       {"temperature", "top_k", "top_p", "min_p", "seed", "stop", "repeat_penalty", "repeat_last_n",
        "presence_penalty", "frequency_penalty"}) {
    if (const json::Value* value = own.find(name)) fields[name] = *value;
  }
  if (reader.find("num_predict")) {
    const std::int64_t n = reader.integer("num_predict", -1, -2, kMost);
    fields["n_predict"] = n < 0 ? std::int64_t{-1} : n;
  }
  if (!reader.ok()) return in.fail(reader.error());
  const json::Value translated = std::move(fields);
  BodyReader inner(translated);
  read_sampling(inner, engine, Surface::chat, out);
  if (!inner.ok()) in.fail(inner.error());
}

// think: whether, or how hard.
void read_think(BodyReader& in, const ServerState& state, GenerateRequest& out) {
  read_template_variables(in, state, out);
  const json::Value* think = in.find("think");
  if (!think) return;
  if (const bool* is_on = think->as_bool()) {
    out.template_variables["enable_thinking"] = *is_on;
  } else if (const std::string* effort = think->as_string()) {
    out.template_variables["enable_thinking"] = *effort != "none";
    out.template_variables["reasoning_effort"] = *effort;
  } else {
    in.fail("think must be of type bool or str", "think");
  }
}

// format: "json", or a JSON schema.
void read_format(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings) {
  const json::Value* format = in.find("format");
  if (!format) return;
  const std::string* word = format->as_string();
  if (word && word->empty()) return;
  if (!format->is_object() && !(word && *word == "json"))
    return in.fail("format must be json or a JSON schema", "format");
  if (out.messages.empty())
    return in.fail("format needs a chat template: nothing enforces it on raw text", "format");
  json::Object form{{"type", "json_object"}};
  if (format->is_object())
    form = {{"type", "json_schema"}, {"json_schema", json::Object{{"schema", *format}}}};
  const json::Value translated = json::Object{{"response_format", std::move(form)}};
  BodyReader inner(translated);
  read_output_form(inner, out, warnings);
}

void read_ollama_tools(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings) {
  const json::Array* tools = in.array("tools");
  if (!tools) return;
  const json::Value translated = json::Object{{"tools", *tools}};
  BodyReader inner(translated);
  read_tools(inner, out, warnings);
  if (!inner.ok()) in.fail(inner.error());
}

void read_common(BodyReader& in, const ServerState& state, OllamaRequest& out) {
  out.stream = in.boolean("stream", true);
  read_options(in, *state.engine.load(), out.generate);
  read_think(in, state, out.generate);
  out.generate.splits_reasoning = state.options.reasoning_field != "none";
}

// The least that shows a ready model: one token fed, none made.
void make_load(OllamaRequest& out) {
  out.is_load = true;
  out.generate = {};
  out.generate.prompt_tokens = {TokenId{0}};
  out.generate.max_tokens = 0;
  out.generate.uses_cache = false;
}

void refuse_unsupported(BodyReader& in) {
  for (const char* field : {"suffix", "template"}) {
    if (!in.string(field, "").empty()) in.fail(std::string(field) + " is not supported", field);
  }
  const json::Array* images = in.array("images");
  if (images && !images->empty()) in.fail("this model does not accept images", "images");
  const json::Array* context = in.array("context");
  if (context && !context->empty()) in.fail("context is not supported; use /api/chat", "context");
}

}  // namespace

OllamaRequest read_ollama_chat(BodyReader& in,
                               const ServerState& state,
                               std::vector<std::string>& warnings) {
  OllamaRequest out;
  read_common(in, state, out);
  const json::Array* messages = in.array("messages");
  if (!messages || messages->empty()) {
    make_load(out);
    return out;
  }
  GenerateRequest& generate = out.generate;
  generate.messages = read_ollama_messages(in, *messages);
  read_ollama_tools(in, generate, warnings);
  if (!in.ok()) return out;
  const json::Value& last = generate.messages.back();
  generate.continue_final_message =
      last.string_or("role", "") == "assistant" && !last.find("tool_calls");
  read_format(in, generate, warnings);
  return out;
}

OllamaRequest read_ollama_generate(BodyReader& in,
                                   const ServerState& state,
                                   std::vector<std::string>& warnings) {
  OllamaRequest out;
  read_common(in, state, out);
  refuse_unsupported(in);
  const std::string prompt = in.string("prompt", "");
  const std::string system = in.string("system", "");
  const bool is_raw = in.boolean("raw", false);
  if (prompt.empty()) {
    make_load(out);
    return out;
  }
  GenerateRequest& generate = out.generate;
  if (is_raw || !state.engine.load()->summary().has_chat_template()) {
    generate.prompt = system.empty() || is_raw ? prompt : system + "\n\n" + prompt;
    generate.parse_special = is_raw;
    generate.splits_reasoning = false;
  } else {
    if (!system.empty())
      generate.messages.push_back(json::Object{{"role", "system"}, {"content", system}});
    generate.messages.push_back(json::Object{{"role", "user"}, {"content", prompt}});
  }
  read_format(in, generate, warnings);
  return out;
}

}  // namespace kvasir::server
