#include "kvasir/text/text_model.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "formats/gguf_vocab.h"
#include "text/eos.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 64ull << 20;
constexpr std::uint64_t kMaxTemplateBytes = 1ull << 20;

text::GgufVocab to_text(formats::GgufVocab v) {
  text::GgufVocab out;
  out.model = std::move(v.model);
  out.pre = std::move(v.pre);
  out.tokens = std::move(v.tokens);
  out.scores = std::move(v.scores);
  out.token_types = std::move(v.token_types);
  out.merges = std::move(v.merges);
  out.bos = v.bos_id;
  out.eos = v.eos_id;
  out.unk = v.unknown_id;
  out.pad = v.padding_id;
  out.sep = v.separator_id;
  out.mask = v.mask_id;
  out.cls = v.cls_id;
  out.add_bos = v.add_bos;
  out.add_eos = v.add_eos;
  out.add_space_prefix = v.add_space_prefix;
  out.remove_extra_whitespaces = v.remove_extra_whitespaces;
  return out;
}

std::string read_optional(const std::filesystem::path& path, std::uint64_t max_bytes) {
  auto bytes = read_file(path, max_bytes);
  return bytes ? *std::move(bytes) : std::string();
}

struct Sources {
  text::TemplateSources templates;
  std::vector<TokenId> family_eos;
};

Result<Sources> read_sources(const formats::ModelFiles& files) {
  Sources sources;
  if (files.container() == formats::Container::gguf) {
    KVASIR_TRY(formats::GgufVocab vocab, formats::read_gguf_vocab(files));
    sources.templates.gguf = std::move(vocab.chat_template);
    for (const auto& id : {vocab.eot_id, vocab.eom_id}) {
      if (id) sources.family_eos.push_back(*id);
    }
    return sources;
  }
  sources.templates.jinja_file =
      read_optional(files.path() / "chat_template.jinja", kMaxTemplateBytes);
  const std::string config = read_optional(files.path() / "tokenizer_config.json", kMaxConfigBytes);
  if (!config.empty()) {
    KVASIR_TRY(sources.templates.tokenizer_config, json::parse(config));
  }
  return sources;
}

text::CivilTime local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
          local.tm_hour,        local.tm_min,     local.tm_sec};
}

// As templates that ask for the date expect it (TXT-28): 01 Dec 2026.
std::string date_of(const text::CivilTime& now) {
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return (now.day < 10 ? "0" : "") + std::to_string(now.day) + " " + kMonths[now.month - 1] + " " +
         std::to_string(now.year);
}

// The rendered text with blanks in the place of what messages say: markers that a user writes open
// nothing.
std::string without_content(const text::Rendered& rendered) {
  std::string out = rendered.text;
  for (const auto& span : rendered.spans)
    if (span.is_content)
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(span.begin),
                out.begin() + static_cast<std::ptrdiff_t>(span.end), ' ');
  return out;
}

std::uint32_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::uint32_t>(differ.first - a.begin());
}

}  // namespace

Result<text::Tokenizer> load_tokenizer(const formats::ModelFiles& files) {
  if (files.container() == formats::Container::hub_folder)
    return text::Tokenizer::from_folder(files.path());
  KVASIR_TRY(formats::GgufVocab vocab, formats::read_gguf_vocab(files));
  return text::Tokenizer::from_gguf(to_text(std::move(vocab)));
}

Result<TextModel> TextModel::load(const formats::ModelFiles& files, const TextOptions& options) {
  KVASIR_TRY(text::Tokenizer tokenizer, load_tokenizer(files));
  KVASIR_TRY(Sources sources, read_sources(files));
  sources.templates.override_text = options.chat_template;
  sources.templates.uses_default = options.use_default_chat_template;
  TextModel model(std::move(tokenizer));
  KVASIR_TRY(model.eos_ids_, text::eos_ids({.config = &files.config(),
                                            .generation_config = &files.generation_config(),
                                            .tokenizer_eos = model.tokenizer_.eos(),
                                            .family_ids = sources.family_eos}));
  const auto chosen = text::choose_template(sources.templates);
  if (chosen) {
    KVASIR_TRY(model.template_, text::ChatTemplate::compile(chosen->text, chosen->name));
    model.traits_ = text::probe_template(*model.template_, model.token_variables());
    model.output_ = text::detect_output_format(chosen->text);
  } else if (chosen.error().code != Errc::not_found) {
    return chosen.error();
  }
  if (!options.tool_parser.empty()) {
    KVASIR_TRY(model.output_.tools, text::parse_tool_format(options.tool_parser));
  }
  return model;
}

std::vector<TokenId> TextModel::newline_ids() const {
  const auto ids = tokenizer_.encode("\n", {.add_special = false, .parse_special = false});
  return ids ? *ids : std::vector<TokenId>{};
}

json::Object TextModel::token_variables() const {
  json::Object variables;
  for (const auto& [name, spelling] : tokenizer_.named_special_tokens()) variables[name] = spelling;
  const auto name_token = [&](const char* name, std::optional<TokenId> id) {
    if (!variables.find(name))
      variables[name] = id ? json::Value(tokenizer_.piece(*id)) : json::Value("");
  };
  name_token("bos_token", tokenizer_.bos());
  name_token("eos_token", tokenizer_.eos());
  return variables;
}

Result<text::Rendered> TextModel::render(const GenerateRequest& request) const {
  if (!template_) return unsupported("this model has no chat template; use /v1/completions");
  text::ChatRendering rendering;
  rendering.variables = token_variables();
  rendering.variables["messages"] = request.messages;
  if (!request.tools.empty()) rendering.variables["tools"] = request.tools;
  rendering.variables["add_generation_prompt"] = !request.continue_final_message;
  rendering.options.now = local_now();
  rendering.variables["date_string"] = date_of(rendering.options.now);
  for (const auto& [name, value] : request.template_variables) rendering.variables[name] = value;
  rendering.continue_final_message = request.continue_final_message;
  return text::render_chat(*template_, traits_, std::move(rendering));
}

Result<std::vector<TokenId>> TextModel::encode(const text::Rendered& rendered) const {
  std::vector<text::TextSpan> spans;
  const std::string_view whole = rendered.text;
  for (const auto& span : rendered.spans) {
    spans.push_back({whole.substr(span.begin, span.end - span.begin), !span.is_content});
  }
  return tokenizer_.encode_chat(spans);
}

Result<RenderedPrompt> TextModel::chat_prompt(const GenerateRequest& request) const {
  KVASIR_TRY(const text::Rendered rendered, render(request));
  RenderedPrompt prompt;
  KVASIR_TRY(prompt.tokens, encode(rendered));
  prompt.starts_in_reasoning = text::starts_in_reasoning(
      output_.reasoning,
      request.continue_final_message ? rendered.text : without_content(rendered));
  if (request.continue_final_message) return prompt;
  GenerateRequest longer = request;
  const json::Object user{{"role", "user"}, {"content", "."}};
  longer.messages.push_back(user);
  auto next = render(longer);
  if (!next) {  // roles of some templates must alternate
    longer.messages.back() = json::Object{{"role", "assistant"}, {"content", "."}};
    longer.messages.push_back(user);
    next = render(longer);
  }
  if (!next) return prompt;  // no boundary
  KVASIR_TRY(const auto next_tokens, encode(*next));
  prompt.stable_tokens = common_prefix(prompt.tokens, next_tokens);
  return prompt;
}

}  // namespace kvasir
