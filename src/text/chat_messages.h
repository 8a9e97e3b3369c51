// Turns a request's messages into what a model's chat template understands (TXT-29, TXT-31). What a
// template needs is found once, at load, by rendering small conversations (probe_template). Values
// only; safe from many threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "text/chat_template.h"

namespace kvasir::text {

enum class ContentForm : std::uint8_t {
  any,    // the template takes strings and lists of parts
  text,   // strings only: lists of text parts are joined
  parts,  // lists only: strings become one text part
};

struct TemplateTraits {
  ContentForm content = ContentForm::any;
  bool knows_developer = false;     // named there and rendered; else the role becomes "system"
  bool needs_null_as_text = false;  // content null fails or prints None: give ""
  bool needs_text_arguments =
      false;  // tool_calls[].function.arguments must be a JSON string; usually an object
  std::vector<std::string> dropped_roles;  // their messages would vanish without an error
};

// variables: what every rendering gets (bos_token, eos_token, …).
TemplateTraits probe_template(const ChatTemplate& chat_template, const json::Object& variables);

// messages: a JSON array. Errors (invalid_argument, naming messages[i]): no array or object, an
// unknown role, parts other than text for a template of strings, a role that the template leaves
// out.
Result<json::Value> prepare_messages(const json::Value& messages,
                                     const ChatTemplate& chat_template,
                                     const TemplateTraits& traits);

// Gives every schema node below tools[].function.parameters a "type": object if it has properties,
// array if items, that of its enum's values, else string.
json::Value prepare_tools(json::Value tools);

struct ChatRendering {
  json::Object variables;  // "messages" and "tools" as the request has them, and everything else
  RenderOptions options;
  bool continue_final_message =
      false;  // the last message is the assistant's: end behind its content
};

// prepare_messages, prepare_tools and render in one. A template that does not show the final
// content is an error when it is to be continued.
Result<Rendered> render_chat(const ChatTemplate& chat_template,
                             const TemplateTraits& traits,
                             ChatRendering request);

}  // namespace kvasir::text
