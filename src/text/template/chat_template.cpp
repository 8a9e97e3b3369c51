#include "text/chat_template.h"

#include <utility>

#include "text/template/interp.h"
#include "text/template/lexer.h"
#include "text/template/parser.h"
#include "text/template/resolve.h"

namespace kvasir::text {

namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;  // TXT-30

// Content spans → spans that cover the whole text.
std::vector<OriginSpan> cover(const std::vector<tmpl::Span>& content, std::size_t n_bytes) {
  std::vector<OriginSpan> spans;
  std::size_t at = 0;
  for (const tmpl::Span& span : content) {
    if (span.begin > at) spans.push_back({at, span.begin, false});
    spans.push_back({span.begin, span.end, true});
    at = span.end;
  }
  if (at < n_bytes) spans.push_back({at, n_bytes, false});
  return spans;
}

// The text of a tokenizer_config's "chat_template": a string, or the entry called `variant` (else
// "default").
const std::string* config_template(const json::Value& config, std::string_view variant) {
  const json::Value* given = config.find("chat_template");
  if (given == nullptr) return nullptr;
  if (const std::string* text = given->as_string()) return text;
  const json::Array* list = given->as_array();
  if (list == nullptr) return nullptr;
  const std::string* fallback = nullptr;
  for (const json::Value& entry : *list) {
    const json::Value* text = entry.find("template");
    if (text == nullptr || text->as_string() == nullptr) continue;
    const std::string name = entry.string_or("name", "");
    if (name == variant) return text->as_string();
    if (name == "default") fallback = text->as_string();
  }
  return fallback;
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const tmpl::Program> program)
    : program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::compile(std::string source, std::string_view name) {
  if (source.size() > kMaxSourceBytes) {
    return invalid(std::string(name) + ": larger than 1 MiB");
  }
  auto program = std::make_shared<tmpl::Program>();
  program->source = tmpl::normalize_source(source);
  Status status = tmpl::parse_program(*program);
  if (status) status = tmpl::resolve_program(*program);
  if (!status) return invalid(std::string(name) + ": " + status.error().what);
  return ChatTemplate(std::move(program));
}

Result<Rendered> ChatTemplate::render(const json::Object& variables,
                                      const RenderOptions& options) const {
  tmpl::Interp interp(*program_, options);
  if (!interp.run(variables)) return invalid(interp.error_text());
  Rendered rendered;
  rendered.spans = cover(interp.output().spans(), interp.output().size());
  rendered.text = interp.output().bytes();
  return rendered;
}

std::string_view ChatTemplate::source() const noexcept { return program_->source; }

Result<ChosenTemplate> choose_template(const TemplateSources& sources, std::string_view variant) {
  if (!sources.override_text.empty())
    return ChosenTemplate{"--chat-template", sources.override_text};
  if (!sources.jinja_file.empty()) return ChosenTemplate{"chat_template.jinja", sources.jinja_file};
  if (const std::string* text = config_template(sources.tokenizer_config, variant)) {
    if (!text->empty()) return ChosenTemplate{"tokenizer_config.json", *text};
  }
  if (!sources.gguf.empty()) return ChosenTemplate{"tokenizer.chat_template", sources.gguf};
  if (sources.uses_default)
    return ChosenTemplate{"--use-default-chat-template", std::string(kDefaultChatTemplate)};
  return not_found("this model has no chat template; use /v1/completions");
}

}  // namespace kvasir::text
