// POST /v1/completions (SRV-11).
#include <utility>

#include "base/utf8.h"
#include "server/endpoints/endpoint.h"
#include "server/endpoints/openai_json.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {
namespace {

constexpr std::int64_t kMaxChoices = 8;
constexpr std::size_t kMaxPrompts = 64;

// A token's text as a key; parts of characters by their bytes, as OpenAI names them.
std::string name_of(const std::string& bytes) {
  std::string repaired = repair_utf8(bytes);
  if (repaired == bytes) return repaired;
  std::string out = "bytes:";
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

// OpenAI's legacy block: parallel lists.
struct LogprobLists {
  json::Array tokens, token_logprobs, top_logprobs, text_offset;
  std::size_t offset = 0;  // characters of the choice's text so far

  void add(const Engine& engine, TokenId token, const Logprobs* logprobs) {
    const std::string bytes = engine.token_bytes(token);
    tokens.push_back(repair_utf8(bytes));
    text_offset.push_back(static_cast<std::uint64_t>(offset));
    // A character that several tokens spell counts once, with the first of its bytes.
    for (const char c : bytes) offset += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (!logprobs) {
      token_logprobs.push_back(nullptr);
      top_logprobs.push_back(nullptr);
      return;
    }
    token_logprobs.push_back(finite_logprob(logprobs->logprob));
    json::Object top;
    for (const TokenLogprob& other : logprobs->top) {
      const std::string name = name_of(engine.token_bytes(other.token));
      if (!top.find(name)) top[name] = finite_logprob(other.logprob);  // the likelier one is first
    }
    top_logprobs.push_back(std::move(top));
  }
  json::Value take() {
    return json::Object{{"tokens", std::exchange(tokens, {})},
                        {"token_logprobs", std::exchange(token_logprobs, {})},
                        {"top_logprobs", std::exchange(top_logprobs, {})},
                        {"text_offset", std::exchange(text_offset, {})}};
  }
};

class CompletionFormat final : public ApiFormat {
 public:
  explicit CompletionFormat(const Engine& engine) : engine_(engine) {}

  bool includes_usage = false;
  bool has_logprobs = false;
  bool echoes = false;
  bool uses_mlx_logprobs = false;
  std::vector<std::string> prompt_texts;  // empty ones were given as tokens

  ErrorShape error_shape() const noexcept override { return ErrorShape::openai; }

  void begin(const Transcript& transcript, std::string&) override {
    lists_.resize(transcript.choices.size());
    has_echoed_.assign(transcript.choices.size(), false);
  }

  void event(const Transcript& transcript, const StreamEvent& event, std::string& out) override {
    std::string text;
    for (const text::OutputPiece& piece : event.pieces) text += piece.text;
    // The prompt's log-probabilities are complete when its first token is out.
    const bool is_first = !has_echoed_[event.choice] && (!event.tokens.empty() || event.is_end);
    if (echoes && is_first) {
      text.insert(0, prompt_text(transcript, event.choice));
      add_prompt(transcript, event.choice, lists_[event.choice]);
    }
    has_echoed_[event.choice] = has_echoed_[event.choice] || is_first;
    for (std::size_t i = 0; i < event.logprobs.size(); ++i)
      lists_[event.choice].add(engine_, event.tokens[i], &event.logprobs[i]);
    const bool is_last = event.is_end && ++ends_ == transcript.choices.size();
    if (text.empty() && !event.is_end) return;
    const json::Value logprobs = has_logprobs ? lists_[event.choice].take() : json::Value();
    json::Object chunk = head(transcript);
    chunk["choices"] = json::Array{choice_json(transcript, event.choice, text, logprobs)};
    if (includes_usage) chunk["usage"] = nullptr;
    if (is_last && !includes_usage) append_totals(transcript, engine_, chunk);
    append_sse(out, chunk);
  }

  void finish(const Transcript& transcript, std::string& out) override {
    if (includes_usage) {
      json::Object chunk = head(transcript);
      chunk["choices"] = json::Array{};
      append_totals(transcript, engine_, chunk);
      append_sse(out, chunk);
    }
    out += "data: [DONE]\n\n";
  }

  void error(const ApiError& error, std::string& out) override {
    append_sse(out, error_body(error, error_shape()));
  }

  json::Value whole(const Transcript& transcript) override {
    json::Array choices;
    for (std::uint32_t i = 0; i < transcript.choices.size(); ++i) {
      const ChoiceTranscript& choice = transcript.choices[i];
      LogprobLists lists;
      std::string text = choice.content();
      if (echoes) {
        text.insert(0, prompt_text(transcript, i));
        add_prompt(transcript, i, lists);
      }
      for (std::size_t t = 0; t < choice.logprobs.size(); ++t)
        lists.add(engine_, choice.tokens[t], &choice.logprobs[t]);
      json::Value logprobs;
      if (has_logprobs && uses_mlx_logprobs)
        logprobs = json::Object{{"content", mlx_logprobs(engine_, choice.tokens, choice.logprobs)}};
      else if (has_logprobs)
        logprobs = lists.take();
      choices.push_back(choice_json(transcript, i, text, std::move(logprobs)));
    }
    json::Object out = head(transcript);
    out["choices"] = std::move(choices);
    append_totals(transcript, engine_, out);
    return out;
  }

 private:
  json::Object head(const Transcript& transcript) const {
    return answer_head(id_, "text_completion", transcript, engine_);
  }

  static json::Object choice_json(const Transcript& transcript,
                                  std::uint32_t index,
                                  const std::string& text,
                                  json::Value logprobs) {
    const std::optional<ChoiceEnd>& end = transcript.choices[index].end;
    const json::Value reason = end ? json::Value(end->finish_reason) : json::Value();
    return {{"index", index},
            {"text", text},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", reason}};
  }

  const std::vector<TokenId>& prompt_of(const Transcript& transcript, std::uint32_t index) const {
    return transcript.prompts[index / transcript.n_per_prompt];
  }
  std::string prompt_text(const Transcript& transcript, std::uint32_t index) const {
    const std::string& text = prompt_texts[index / transcript.n_per_prompt];
    return text.empty() ? engine_.detokenize(prompt_of(transcript, index)) : text;
  }
  // Of the prompt's first tokens, those that stand for none of the text that was given.
  std::size_t n_added(const Transcript& transcript, std::uint32_t index) const {
    const std::string& text = prompt_texts[index / transcript.n_per_prompt];
    const std::span<const TokenId> prompt = prompt_of(transcript, index);
    if (text.empty() || prompt.size() < 2 || engine_.detokenize(prompt) == text) return 0;
    return engine_.detokenize(prompt.subspan(1)) == text ? 1 : 0;
  }
  void add_prompt(const Transcript& transcript, std::uint32_t index, LogprobLists& lists) const {
    const auto& known = transcript.choices[index].prompt_logprobs;
    const auto& prompt = prompt_of(transcript, index);
    for (std::size_t i = n_added(transcript, index); i < prompt.size(); ++i)
      lists.add(engine_, prompt[i], i > 0 && i <= known.size() ? &known[i - 1] : nullptr);
  }

  const Engine& engine_;
  std::string id_ = new_id("cmpl-");
  std::vector<LogprobLists> lists_;
  std::vector<bool> has_echoed_;
  std::size_t ends_ = 0;
};

bool read_token_prompt(const json::Array& list, GenerateRequest& out) {
  for (const json::Value& id : list) {
    const std::int64_t* i = id.as_int();
    if (!i || *i < 0 || *i > std::int64_t{0xFFFF'FFFF}) return false;
    out.prompt_tokens.push_back(static_cast<TokenId>(*i));
  }
  return true;
}

// A string, token ids, or a list of either.
void read_prompts(BodyReader& in, const GenerateRequest& base, std::vector<GenerateRequest>& out) {
  constexpr const char* kForms =
      "prompt must be a string, a list of strings, a list of token ids or a list of those";
  const json::Value* prompt = in.find("prompt");
  if (!in.ok()) return;
  const auto add = [&](const json::Value& value) {
    GenerateRequest request = base;
    const json::Array* ids = value.as_array();
    if (const std::string* text = value.as_string())
      request.prompt = *text;
    else if (!ids || ids->empty() || !read_token_prompt(*ids, request))
      return in.fail(kForms, "prompt");
    out.push_back(std::move(request));
  };
  if (!prompt) return in.fail(kForms, "prompt");
  const json::Array* list = prompt->as_array();
  if (!list || (!list->empty() && list->front().is_int())) return add(*prompt);
  if (list->empty()) return in.fail(kForms, "prompt");
  if (list->size() > kMaxPrompts) return in.fail("prompt must have at most 64 entries", "prompt");
  for (const json::Value& entry : *list) add(entry);
}

}  // namespace

PlanOrError plan_completion(ServerState& state, const json::Value& body) {
  const Engine& engine = *state.engine.load();
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  Plan plan;
  plan.model = std::get<std::string>(std::move(model));
  GenerateRequest base;
  BodyReader in(body);
  const RequestSampling sampling = read_sampling(in, engine, Surface::completions, base);
  base.n = static_cast<std::uint32_t>(in.integer("n", 1, 1, kMaxChoices));
  base.parse_special = true;
  auto format = std::make_unique<CompletionFormat>(engine);
  format->echoes = in.boolean("echo", false);
  format->has_logprobs = sampling.options.logprobs;
  format->uses_mlx_logprobs = state.options.mlx_logprobs;
  if (format->echoes && sampling.options.logprobs)
    base.prompt_logprobs = sampling.options.top_logprobs;
  if (!in.string("suffix", "").empty()) in.fail("suffix is not supported", "suffix");
  if (const json::Object* options = in.object("stream_options"))
    format->includes_usage = json::Value(*options).bool_or("include_usage", false);
  refuse_grammars(in);
  if (const json::Object* form = in.object("response_format");
      form && form->find("type") && json::Value(*form).string_or("type", "") != "text")
    in.fail("response_format needs a chat request", "response_format");
  read_prompts(in, base, plan.requests);
  if (!in.ok()) return in.error();
  for (const GenerateRequest& request : plan.requests)
    format->prompt_texts.push_back(request.prompt);
  plan.stream = sampling.stream;
  plan.format = std::move(format);
  return plan;
}

}  // namespace kvasir::server
