// POST /v1/chat/completions (SRV-30…35).
#include <string_view>
#include <utility>
#include <vector>

#include "server/endpoints/endpoint.h"
#include "server/endpoints/openai_json.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {
namespace {

constexpr std::int64_t kMaxChoices = 8;
constexpr std::size_t kArgumentBytes = 64;  // of a piece

// The most bytes up to n that end no character in its middle.
std::size_t utf8_prefix(std::string_view text, std::size_t n) {
  if (text.size() <= n) return text.size();
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return n;
}

class ChatCompletionFormat final : public ApiFormat {
 public:
  ChatCompletionFormat(const Engine& engine, std::string reasoning_field)
      : engine_(engine), reasoning_field_(std::move(reasoning_field)) {}

  bool includes_usage = false;  // stream_options.include_usage
  bool has_logprobs = false;
  bool uses_mlx_logprobs = false;
  bool splits_calls = false;  // --stream-tool-arguments

  ErrorShape error_shape() const noexcept override { return ErrorShape::openai; }

  void begin(const Transcript& transcript, std::string& out) override {
    for (std::uint32_t i = 0; i < transcript.choices.size(); ++i)
      append_chunk(transcript, i, json::Object{{"role", "assistant"}, {"content", ""}}, {}, out);
  }

  void event(const Transcript& transcript, const StreamEvent& event, std::string& out) override {
    // Log-probabilities go with the first chunk of the event, or with the last chunk of the choice.
    json::Value logprobs;
    if (!event.logprobs.empty())
      logprobs = json::Object{{"content", chat_logprobs(engine_, event.tokens, event.logprobs)}};
    for (const text::OutputPiece& piece : event.pieces) {
      for (json::Object& delta : deltas_of(piece))
        append_chunk(transcript, event.choice, std::move(delta), std::exchange(logprobs, {}), out);
    }
    if (!event.is_end) return;
    const ChoiceEnd& end = *transcript.choices[event.choice].end;
    ends_ += 1;
    const bool is_last = ends_ == transcript.choices.size();
    append_chunk(transcript, event.choice, json::Object{}, std::move(logprobs), out,
                 end.finish_reason, is_last && !includes_usage);
  }

  void finish(const Transcript& transcript, std::string& out) override {
    if (includes_usage) {
      json::Object chunk = head(transcript, "chat.completion.chunk");
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
    for (std::size_t i = 0; i < transcript.choices.size(); ++i) {
      const ChoiceTranscript& choice = transcript.choices[i];
      json::Object entry{{"index", static_cast<std::uint64_t>(i)}, {"message", message_of(choice)}};
      entry["logprobs"] = has_logprobs ? logprobs_of(choice) : json::Value();
      entry["finish_reason"] = choice.end->finish_reason;
      choices.push_back(std::move(entry));
    }
    json::Object out = head(transcript, "chat.completion");
    out["choices"] = std::move(choices);
    append_totals(transcript, engine_, out);
    return out;
  }

 private:
  json::Value logprobs_of(const ChoiceTranscript& choice) const {
    const auto block = uses_mlx_logprobs ? mlx_logprobs : chat_logprobs;
    return json::Object{{"content", block(engine_, choice.tokens, choice.logprobs)}};
  }

  json::Object head(const Transcript& transcript, const char* object) const {
    return answer_head(id_, object, transcript, engine_);
  }

  std::vector<json::Object> deltas_of(const text::OutputPiece& piece) const {
    switch (piece.kind) {
      case text::OutputKind::content:
        return {{{"content", piece.text}}};
      case text::OutputKind::reasoning:
        return {{{reasoning_field_, piece.text}}};
      case text::OutputKind::tool_call:
        if (splits_calls) return parts_of(piece.call);
        return {{{"tool_calls", json::Array{tool_call_json(piece.call, /*with_index=*/true)}}}};
    }
    return {};
  }

  // The name, then the arguments piece by piece. All come when the call closes: before that its
  // text might still turn out to be content (TXT-43), and nothing sent is withdrawn (SRV-35).
  static std::vector<json::Object> parts_of(const text::ToolCall& call) {
    text::ToolCall head = call;
    head.arguments.clear();
    std::vector<json::Object> out{
        {{"tool_calls", json::Array{tool_call_json(head, /*with_index=*/true)}}}};
    std::string_view rest = call.arguments;
    while (!rest.empty()) {
      const std::size_t n = utf8_prefix(rest, kArgumentBytes);
      const json::Object function{{"arguments", rest.substr(0, n)}};
      out.push_back({{"tool_calls",
                      json::Array{json::Object{{"index", call.index}, {"function", function}}}}});
      rest.remove_prefix(n);
    }
    return out;
  }

  json::Object message_of(const ChoiceTranscript& choice) const {
    json::Object message{{"role", "assistant"}, {"content", choice.content()}};
    const std::string reasoning = choice.reasoning();
    if (!reasoning.empty()) message[reasoning_field_] = reasoning;
    json::Array calls;
    for (const text::ToolCall& call : choice.tool_calls())
      calls.push_back(tool_call_json(call, /*with_index=*/false));
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    return message;
  }

  void append_chunk(const Transcript& transcript,
                    std::uint32_t index,
                    json::Object delta,
                    json::Value logprobs,
                    std::string& out,
                    const std::string& finish_reason = {},
                    bool with_totals = false) const {
    json::Object chunk = head(transcript, "chat.completion.chunk");
    const json::Value reason = finish_reason.empty() ? json::Value() : json::Value(finish_reason);
    chunk["choices"] = json::Array{json::Object{{"index", index},
                                                {"delta", std::move(delta)},
                                                {"logprobs", std::move(logprobs)},
                                                {"finish_reason", reason}}};
    if (includes_usage) chunk["usage"] = nullptr;
    if (with_totals) append_totals(transcript, engine_, chunk);
    append_sse(out, chunk);
  }

  const Engine& engine_;
  std::string reasoning_field_;
  std::string id_ = new_id("chatcmpl-");
  std::size_t ends_ = 0;
};

void read_messages(BodyReader& in, GenerateRequest& out) {
  const json::Value* messages = in.find("messages");
  const json::Array* list = messages ? messages->as_array() : nullptr;
  if (in.ok() && (!list || list->empty()))
    return in.fail("messages must be a non-empty array", "messages");
  if (list) out.messages = with_both_reasoning_names(*list);
}

// TXT-31: the answer goes on with the last message.
void read_continuation(BodyReader& in, GenerateRequest& out) {
  const bool adds_prompt = in.boolean("add_generation_prompt", true);
  const bool is_asked = in.boolean("continue_final_message", false);
  if (!in.ok()) return;
  const bool ends_with_assistant =
      !out.messages.empty() && out.messages.back().string_or("role", "") == "assistant";
  if (is_asked && !ends_with_assistant)
    return in.fail("continue_final_message needs a last message of the assistant",
                   "continue_final_message");
  out.continue_final_message = is_asked || (!adds_prompt && ends_with_assistant);
  if (!adds_prompt && !out.continue_final_message)
    out.template_variables["add_generation_prompt"] = false;
}

}  // namespace

PlanOrError plan_chat_completion(ServerState& state, const json::Value& body) {
  const Engine& engine = *state.engine.load();
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  Plan plan;
  plan.model = std::get<std::string>(std::move(model));
  GenerateRequest request;
  BodyReader in(body);
  read_messages(in, request);
  const RequestSampling sampling = read_sampling(in, engine, Surface::chat, request);
  request.n = static_cast<std::uint32_t>(in.integer("n", 1, 1, kMaxChoices));
  read_template_variables(in, state, request);
  read_tools(in, request, plan.warnings);
  read_continuation(in, request);
  read_output_form(in, request, plan.warnings);
  const bool splits = state.options.reasoning_field != "none";
  request.splits_reasoning = splits;
  auto format = std::make_unique<ChatCompletionFormat>(
      engine, splits ? state.options.reasoning_field : "reasoning");
  if (const json::Object* options = in.object("stream_options"))
    format->includes_usage = json::Value(*options).bool_or("include_usage", false);
  format->has_logprobs = sampling.options.logprobs;
  format->uses_mlx_logprobs = state.options.mlx_logprobs;
  format->splits_calls = state.options.streams_tool_arguments;
  if (!in.ok()) return in.error();
  plan.stream = sampling.stream;
  plan.format = std::move(format);
  plan.requests.push_back(std::move(request));
  return plan;
}

}  // namespace kvasir::server
