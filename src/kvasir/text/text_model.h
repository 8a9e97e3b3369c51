// TextModel: everything about a model that is text: tokenizer, chat template, what ends a
// generation. Immutable after loading; safe from many threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_files.h"
#include "json/json.h"
#include "kvasir/generation.h"
#include "text/chat_messages.h"
#include "text/chat_template.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace kvasir {

struct RenderedPrompt {
  std::vector<TokenId> tokens;
  bool starts_in_reasoning = false;  // TXT-51
  std::uint32_t stable_tokens = 0;   // template-stable boundary (CACHE-13); 0: none
};

struct TextOptions {
  std::string chat_template;               // --chat-template: its text; empty: the model's own
  std::string tool_parser;                 // --tool-parser; empty: found from the template (TXT-40)
  bool use_default_chat_template = false;  // where the model has none
};

class TextModel {
 public:
  // Errors: of the tokenizer, and of a template that does not compile, naming the line (TXT-20).
  static Result<TextModel> load(const formats::ModelFiles& files, const TextOptions& options);

  const text::Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  std::string_view template_source() const noexcept {
    return template_ ? template_->source() : std::string_view();
  }
  const text::OutputFormat& output() const noexcept { return output_; }
  const std::vector<TokenId>& eos_ids() const noexcept { return eos_ids_; }
  std::vector<TokenId> newline_ids() const;

  // The rendering with the generation prompt, messages prepared as the template needs them
  // (TXT-29), and its token ids: special tokens match in template text only (TXT-32).
  Result<text::Rendered> render(const GenerateRequest& request) const;
  Result<std::vector<TokenId>> encode(const text::Rendered& rendered) const;
  Result<RenderedPrompt> chat_prompt(const GenerateRequest& request) const;

 private:
  json::Object token_variables()
      const;  // bos_token, eos_token and the other special tokens by name (TXT-28)

  explicit TextModel(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> template_;
  text::TemplateTraits traits_;
  text::OutputFormat output_;
  std::vector<TokenId> eos_ids_;
};

// The tokenizer alone.
Result<text::Tokenizer> load_tokenizer(const formats::ModelFiles& files);

}  // namespace kvasir
