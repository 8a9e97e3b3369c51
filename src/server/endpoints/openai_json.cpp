#include "server/endpoints/openai_json.h"

#include <random>

#include "base/utf8.h"

namespace kvasir::server {
namespace {

json::Array bytes_json(std::string_view bytes) {
  json::Array out;
  for (const char c : bytes) out.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return out;
}

json::Object token_json(const Engine& engine, TokenId token, float logprob) {
  const std::string bytes = engine.token_bytes(token);
  return {{"token", repair_utf8(bytes)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", bytes_json(bytes)}};
}

}  // namespace

std::string new_id(std::string_view prefix) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string out(prefix);
  std::uniform_int_distribution<std::size_t> digit(0, kDigits.size() - 1);
  for (int i = 0; i < 24; ++i) out += kDigits[digit(random)];
  return out;
}

json::Value usage_json(const Usage& usage) {
  return json::Object{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", json::Object{{"cached_tokens", usage.cached_tokens}}},
      {"completion_tokens_details",
       json::Object{{"reasoning_tokens", usage.reasoning_tokens},
                    {"accepted_prediction_tokens", usage.draft_accepted},
                    {"rejected_prediction_tokens", usage.draft_tokens - usage.draft_accepted}}}};
}

json::Value timings_json(const Usage& usage) {
  return json::Object{{"prompt_n", usage.prompt_tokens - usage.cached_tokens},
                      {"prompt_ms", usage.prompt_ms},
                      {"predicted_n", usage.completion_tokens},
                      {"predicted_ms", usage.predicted_ms},
                      {"cache_n", usage.cached_tokens},
                      {"draft_n", usage.draft_tokens},
                      {"draft_n_accepted", usage.draft_accepted}};
}

json::Value kvasir_json(const Usage& usage, const Engine& engine) {
  return json::Object{{"method", "autoregressive"},
                      {"kv", engine.summary().kv_type},
                      {"reasons", json::Array{}},
                      {"cached_tokens", usage.cached_tokens},
                      {"checkpoint", nullptr}};
}

json::Object answer_head(const std::string& id,
                         const char* object,
                         const Transcript& transcript,
                         const Engine& engine) {
  return {{"id", id},
          {"object", object},
          {"created", transcript.created_s},
          {"model", transcript.model},
          {"system_fingerprint", engine.summary().numerics}};
}

void append_totals(const Transcript& transcript, const Engine& engine, json::Object& out) {
  const Usage usage = transcript.usage();
  out["usage"] = usage_json(usage);
  out["timings"] = timings_json(usage);
  out["kvasir"] = kvasir_json(usage, engine);
}

json::Value tool_call_json(const text::ToolCall& call, bool with_index) {
  json::Object out;
  if (with_index) out["index"] = call.index;
  out["id"] = call.id;
  out["type"] = "function";
  out["function"] = json::Object{{"name", call.name}, {"arguments", call.arguments}};
  return out;
}

json::Array chat_logprobs(const Engine& engine,
                          std::span<const TokenId> tokens,
                          std::span<const Logprobs> logprobs) {
  json::Array out;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    json::Object entry = token_json(engine, tokens[i], logprobs[i].logprob);
    json::Array top;
    for (const TokenLogprob& other : logprobs[i].top)
      top.push_back(token_json(engine, other.token, other.logprob));
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

json::Array mlx_logprobs(const Engine& engine,
                         std::span<const TokenId> tokens,
                         std::span<const Logprobs> logprobs) {
  json::Array out;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    json::Array top;
    for (const TokenLogprob& other : logprobs[i].top) {
      top.push_back(json::Object{{"id", other.token},
                                 {"token", repair_utf8(engine.token_piece(other.token))},
                                 {"logprob", finite_logprob(other.logprob)}});
    }
    if (top.empty()) {
      out.push_back(
          json::Object{{"id", tokens[i]}, {"logprob", finite_logprob(logprobs[i].logprob)}});
      continue;
    }
    json::Object entry = *top.front().as_object();
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

double finite_logprob(float logprob) noexcept {
  return logprob >= -9999.0f ? static_cast<double>(logprob) : -9999.0;
}

void append_sse(std::string& out, const json::Value& data) {
  out += "data: ";
  out += json::write(data);
  out += "\n\n";
}

void append_sse(std::string& out, std::string_view event, const json::Value& data) {
  out += "event: ";
  out += event;
  out += '\n';
  append_sse(out, data);
}

}  // namespace kvasir::server
