// Chat templates (TXT-20…32): a sandboxed Jinja2 subset with Python's value semantics, whose
// strings know which of their characters came from message content. Called by the chat layer and
// `verify templates`. A ChatTemplate is immutable after compile; render is const and safe from many
// threads at once. Templates and variables are untrusted: rendering is bounded in steps, depth,
// memory and output (TXT-30).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace kvasir::text {

namespace tmpl {
struct Program;
}

// What strftime_now formats: a wall clock reading in whatever zone the server uses.
struct CivilTime {
  int year = 1970, month = 1, day = 1;  // month and day from 1
  int hour = 0, minute = 0, second = 0;
  static CivilTime from_unix(std::int64_t seconds);  // UTC
};

struct RenderOptions {
  CivilTime now;
  // Variables whose strings are content (message text, tool results, tool descriptions), keys
  // included. Well-known values of "role" and "type" stay template text, since templates build
  // markers from them.
  std::vector<std::string> content_variables = {"messages", "tools", "documents"};
};

struct OriginSpan {
  std::size_t begin = 0;  // bytes of Rendered::text, half open
  std::size_t end = 0;
  bool is_content = false;
  friend bool operator==(const OriginSpan&, const OriginSpan&) = default;
};

struct Rendered {
  std::string text;
  std::vector<OriginSpan>
      spans;  // in order, covering the whole text, neighbours differ in is_content
};

class ChatTemplate {
 public:
  // Errors: invalid_argument "<name>: … (line N)" for what does not compile, or a source above 1
  // MiB.
  static Result<ChatTemplate> compile(std::string source, std::string_view name = "chat template");

  // Errors: invalid_argument, "chat template error: {message} (line N)" (a raise_exception's
  // message is carried), or "chat template exceeded its limits".
  Result<Rendered> render(const json::Object& variables, const RenderOptions& options = {}) const;

  std::string_view source() const noexcept;

 private:
  explicit ChatTemplate(std::shared_ptr<const tmpl::Program> program);
  std::shared_ptr<const tmpl::Program> program_;  // shared by copies of this template
};

// Texts a model folder may hold; empty = absent.
struct TemplateSources {
  std::string override_text;     // --chat-template, already read
  std::string jinja_file;        // chat_template.jinja
  json::Value tokenizer_config;  // its "chat_template": a string, or a list of {name, template}
  std::string gguf;              // tokenizer.chat_template
  bool uses_default = false;     // kDefaultChatTemplate where the model has none
};

// ChatML, for models without a template (--use-default-chat-template).
inline constexpr std::string_view kDefaultChatTemplate =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

struct ChosenTemplate {
  std::string name;  // where it came from, for messages: "chat_template.jinja", …
  std::string text;
};

// TXT-20's order. `variant` picks from a list ("default", "tool_use", "rag"), falling back to
// "default". Errors: not_found "this model has no chat template; use /v1/completions".
Result<ChosenTemplate> choose_template(const TemplateSources& sources,
                                       std::string_view variant = "default");

}  // namespace kvasir::text
