// What a running server says of itself (SRV-18…20, SRV-61). All from snapshots: nothing here waits
// for the engine (SCH-16).
#include <unistd.h>

#include "hub/library.h"
#include "server/detail/version.h"
#include "server/endpoints/endpoint.h"

namespace kvasir::server {
namespace {

json::Object admission_json(const ModelSummary& model, const engine::EngineSnapshot& now) {
  return {{"max_safe_context", model.context_length},
          {"memory_budget_bytes", static_cast<std::uint64_t>(now.kv_total_bytes)},
          {"usable_bytes", model.usable_bytes},
          {"free_kv_bytes", static_cast<std::uint64_t>(now.kv_available_bytes)},
          {"weights_bytes", model.weight_bytes}};
}

json::Object cache_json(const cache::PrefixCacheStats& cache) {
  return {{"entries", static_cast<std::uint64_t>(cache.entries)},
          {"bytes", static_cast<std::uint64_t>(cache.bytes)},
          {"max_bytes", static_cast<std::uint64_t>(cache.max_bytes)},
          {"hits", cache.hits},
          {"misses", cache.misses},
          {"hit_tokens", cache.hit_tokens}};
}

json::Array names_json(const std::vector<std::string>& names) {
  json::Array out;
  for (const std::string& name : names) out.push_back(name);
  return out;
}

double per_second(std::uint64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0.0;
}

json::Object timings_json(const Metrics::Totals& totals) {
  return {{"requests", totals.requests},
          {"prompt_tokens", totals.prompt_tokens},
          {"cached_tokens", totals.cached_tokens},
          {"generated_tokens", totals.generated_tokens},
          {"prefill_tokens_per_second",
           per_second(totals.prompt_tokens - totals.cached_tokens, totals.prefill_s)},
          {"decode_tokens_per_second", per_second(totals.decode_tokens, totals.decode_s)}};
}

}  // namespace

HttpReply health(ServerState& state, const HttpRequest&, std::string_view) {
  if (state.engine.load()) return {.status = 200, .body = "{\"status\": \"ok\"}"};
  return {.status = 503, .headers = {{"Retry-After", "1"}}, .body = "{\"status\": \"loading\"}"};
}

HttpReply metrics(ServerState& state, const HttpRequest&, std::string_view) {
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = state.metrics.text(state.engine)};
}

HttpReply stats(ServerState& state, const HttpRequest&, std::string_view) {
  const ModelSummary& model = state.engine.load()->summary();
  const engine::EngineSnapshot now = state.engine.load()->snapshot();
  const ResponseStore::Stats responses = state.responses.stats();
  return json_reply(json::Object{
      {"server", json::Object{{"version", kVersion},
                              {"pid", static_cast<std::int64_t>(getpid())},
                              {"model", state.served_id()},
                              {"backend", model.backend},
                              {"is_held", now.is_held},
                              {"is_closed", now.is_closed}}},
      {"prompt_cache", cache_json(now.cache)},
      {"ssd_cache", nullptr},
      {"response_store",
       json::Object{{"entries", static_cast<std::uint64_t>(responses.entries)},
                    {"bytes", static_cast<std::uint64_t>(responses.bytes)},
                    {"max_bytes", static_cast<std::uint64_t>(ResponseStore::kMaxBytes)}}},
      {"kv_quant", json::Object{{"mode", model.kv_quant},
                                {"layers", names_json(model.kv_layers)},
                                {"key", model.kv_type}}},
      {"kv", json::Object{{"total_bytes", static_cast<std::uint64_t>(now.kv_total_bytes)},
                          {"used_bytes", static_cast<std::uint64_t>(now.kv_used_bytes)},
                          {"row_blocks", static_cast<std::uint64_t>(now.kv_row_blocks)},
                          {"cached_blocks", static_cast<std::uint64_t>(now.kv_cached_blocks)},
                          {"free_blocks", static_cast<std::uint64_t>(now.kv_free_blocks)}}},
      {"admission", admission_json(model, now)},
      {"batch", json::Object{{"configured", now.max_rows},
                             {"active_rows", now.active},
                             {"preparing_rows", now.preparing},
                             {"queued", now.queued},
                             {"queue_limit", now.queue_limit}}},
      {"draft", nullptr},
      {"timings", timings_json(state.metrics.totals())}});
}

// The memory model's report, with rates that were measured here where there are any (FIT-16).
HttpReply fit_report(ServerState& state, const HttpRequest&, std::string_view) {
  const Engine& engine = *state.engine.load();
  const Metrics::Totals totals = state.metrics.totals();
  json::Value body = fit::to_json(engine.fit());
  json::Object& out = *body.as_object();
  const auto measured = [&](const char* name, std::uint64_t n, double seconds) {
    out[name] = seconds > 0 && n > 0 ? json::Value(per_second(n, seconds)) : json::Value();
  };
  measured("measured_decode_tps", totals.decode_tokens, totals.decode_s);
  measured("measured_prefill_tps", totals.prompt_tokens - totals.cached_tokens, totals.prefill_s);
  out["backend"] = engine.summary().backend;
  out["kv_used_bytes"] = static_cast<std::uint64_t>(engine.snapshot().kv_used_bytes);
  return json_reply(body);
}

HttpReply props(ServerState& state, const HttpRequest&, std::string_view) {
  const ModelSummary& model = state.engine.load()->summary();
  const SamplingOptions& s = state.engine.load()->default_sampling();
  const json::Object params{{"temperature", static_cast<double>(s.temperature)},
                            {"top_p", static_cast<double>(s.top_p)},
                            {"top_k", s.top_k},
                            {"min_p", static_cast<double>(s.min_p)},
                            {"repetition_penalty", static_cast<double>(s.repetition_penalty)},
                            {"presence_penalty", static_cast<double>(s.presence_penalty)},
                            {"frequency_penalty", static_cast<double>(s.frequency_penalty)},
                            {"xtc_probability", static_cast<double>(s.xtc_probability)},
                            {"xtc_threshold", static_cast<double>(s.xtc_threshold)}};
  return json_reply(
      json::Object{{"default_generation_settings",
                    json::Object{{"n_ctx", model.context_length}, {"params", params}}},
                   {"total_slots", state.engine.load()->snapshot().max_rows},
                   {"model_path", model.name},
                   {"n_ctx", model.context_length},
                   {"chat_template", model.chat_template},
                   {"bos_token", model.bos_token},
                   {"eos_token", model.eos_token},
                   {"tool_format", text::name_of(model.output.tools)},
                   {"reasoning_format", text::name_of(model.output.reasoning)},
                   {"build_info", kVersion}});
}

// llama-server lists fixed slots; rows here are made as requests come.
HttpReply slots(ServerState& state, const HttpRequest&, std::string_view) {
  const engine::EngineSnapshot now = state.engine.load()->snapshot();
  json::Array slots;
  for (std::uint32_t i = 0; i < now.max_rows; ++i) {
    slots.push_back(json::Object{{"id", i},
                                 {"n_ctx", state.engine.load()->summary().context_length},
                                 {"is_processing", i < now.active + now.preparing}});
  }
  return json_reply(slots);
}

HttpReply version(ServerState& state, const HttpRequest&, std::string_view) {
  const Engine* engine = state.engine;
  return json_reply(
      json::Object{{"version", kVersion},
                   {"backend", engine ? json::Value(engine->summary().backend) : json::Value()}});
}

HttpReply library(ServerState& state, const HttpRequest&, std::string_view) {
  if (!state.library) return json_reply(json::Object{{"models", json::Array{}}});
  return json_reply(hub::to_json(*state.library->models()));
}

}  // namespace kvasir::server
