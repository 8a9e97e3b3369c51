// Pieces of OpenAI's answers (SRV-31, SAMP-31). Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "json/json.h"
#include "kvasir/kvasir.h"
#include "server/endpoints/transcript.h"

namespace kvasir::server {

std::string new_id(std::string_view prefix);  // prefix + 24 random base-62 characters

// id, object, created, model, system_fingerprint: what answers and chunks begin with.
json::Object answer_head(const std::string& id,
                         const char* object,
                         const Transcript& transcript,
                         const Engine& engine);
// usage, timings, kvasir: what the last of them ends with.
void append_totals(const Transcript& transcript, const Engine& engine, json::Object& out);

json::Value usage_json(const Usage& usage);
json::Value timings_json(const Usage& usage);
json::Value kvasir_json(const Usage& usage, const Engine& engine);
json::Value tool_call_json(const text::ToolCall& call, bool with_index);

// {"token", "logprob", "bytes", "top_logprobs"} each. Finite numbers only.
json::Array chat_logprobs(const Engine& engine,
                          std::span<const TokenId> tokens,
                          std::span<const Logprobs> logprobs);
// mlx-lm's block (SAMP-31): {"id", "logprob"}; with alternatives the likeliest of them leads, as
// {"id", "token", "logprob", "top_logprobs"}, tokens as the vocabulary spells them.
json::Array mlx_logprobs(const Engine& engine,
                         std::span<const TokenId> tokens,
                         std::span<const Logprobs> logprobs);
double finite_logprob(float logprob) noexcept;  // below -9999: -9999

void append_sse(std::string& out, const json::Value& data);  // data: {…}\n\n
void append_sse(std::string& out, std::string_view event, const json::Value& data);

}  // namespace kvasir::server
