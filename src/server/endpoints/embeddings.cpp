// POST /v1/embeddings (SRV-14), and Ollama's /api/embed and /api/embeddings.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "contract/generate_options.h"
#include "server/endpoints/embedding_job.h"
#include "server/endpoints/endpoint.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {
namespace {

constexpr std::size_t kMaxInputs = 2048;  // OpenAI's own limit
constexpr std::int64_t kMaxTimeoutMs = 86'400'000;
constexpr const char* kForms =
    "input must be a string, a list of strings, a list of token ids or a list of those";

using PlanOrRefusal = std::variant<EmbeddingPlan, ApiError>;
using ReadFn = PlanOrRefusal (*)(ServerState& state, const json::Value& body);

std::string base64_of(const std::vector<float>& vector) {
  static_assert(std::endian::native == std::endian::little, "clients read little-endian floats");
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(vector.size() * sizeof(float));
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < n ? bytes[i + k] : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? kAlphabet[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

json::Value list_of(const std::vector<float>& vector) {
  json::Array out;
  out.reserve(vector.size());
  for (const float x : vector) out.push_back(static_cast<double>(x));
  return out;
}

bool read_tokens(const json::Array& list, EmbedInput& out) {
  for (const json::Value& id : list) {
    const std::int64_t* i = id.as_int();
    if (!i || *i < 0 || *i > std::int64_t{0xFFFF'FFFF}) return false;
    out.tokens.push_back(static_cast<TokenId>(*i));
  }
  return !out.tokens.empty();
}

void read_inputs(BodyReader& in, EmbedRequest& out) {
  const json::Value* input = in.find("input");
  if (!in.ok()) return;
  const auto add = [&](const json::Value& value) {
    EmbedInput one;
    const json::Array* ids = value.as_array();
    if (const std::string* text = value.as_string()) {
      if (text->empty()) return in.fail("input must not be an empty string", "input");
      one.text = *text;
    } else if (!ids || !read_tokens(*ids, one)) {
      return in.fail(kForms, "input");
    }
    out.inputs.push_back(std::move(one));
  };
  if (!input) return in.fail(kForms, "input");
  const json::Array* list = input->as_array();
  if (!list || (!list->empty() && list->front().is_int())) return add(*input);
  if (list->empty()) return in.fail("input must not be empty", "input");
  if (list->size() > kMaxInputs) return in.fail("input must have at most 2048 entries", "input");
  for (const json::Value& entry : *list) add(entry);
}

void read_common(BodyReader& in, const Engine& engine, EmbedRequest& out) {
  const std::int64_t dimensions = in.integer("dimensions", 0, 1, engine.summary().embedding_width);
  if (dimensions > 0) out.dimensions = static_cast<std::uint32_t>(dimensions);
  if (in.find("instruction")) out.instruction = in.string("instruction", "");
  for (const EmbedInput& input : out.inputs) {
    if (out.instruction && !input.tokens.empty())
      in.fail("instruction needs text inputs, not token ids", "instruction");
  }
  const std::int64_t timeout_ms = in.integer("timeout_ms", 0, 1, kMaxTimeoutMs);
  if (timeout_ms > 0) out.timeout = std::chrono::milliseconds(timeout_ms);
}

json::Value openai_answer(const EmbeddingEnd& end, const std::string& model, bool is_base64) {
  json::Array data;
  for (std::size_t i = 0; i < end.embedded.vectors.size(); ++i) {
    const std::vector<float>& vector = end.embedded.vectors[i];
    data.push_back(
        json::Object{{"object", "embedding"},
                     {"index", static_cast<std::uint64_t>(i)},
                     {"embedding", is_base64 ? json::Value(base64_of(vector)) : list_of(vector)}});
  }
  const std::uint64_t n = end.embedded.prompt_tokens;
  return json::Object{{"object", "list"},
                      {"data", std::move(data)},
                      {"model", model},
                      {"usage", json::Object{{"prompt_tokens", n}, {"total_tokens", n}}}};
}

PlanOrRefusal read_openai(ServerState& state, const json::Value& body) {
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  EmbeddingPlan plan;
  BodyReader in(body);
  read_inputs(in, plan.request);
  read_common(in, *state.engine.load(), plan.request);
  const std::string format = in.string("encoding_format", "float");
  if (format != "float" && format != "base64")
    in.fail("encoding_format must be one of float, base64", "encoding_format");
  if (!in.ok()) return in.error();
  plan.answer = [model = std::get<std::string>(std::move(model)), is_base64 = format == "base64"](
                    const EmbeddingEnd& end) { return openai_answer(end, model, is_base64); };
  return plan;
}

json::Object ollama_totals(const EmbeddingEnd& end) {
  const Stats& stats = end.outcome.stats;
  const auto nanoseconds = static_cast<std::int64_t>((stats.queue_ms + stats.prefill_ms) * 1e6);
  return {{"total_duration", nanoseconds},
          {"load_duration", 0},
          {"prompt_eval_count", end.embedded.prompt_tokens}};
}

// A list of vectors; inputs that are too long are cut unless `truncate` is false.
PlanOrRefusal read_ollama(ServerState& state, const json::Value& body) {
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  EmbeddingPlan plan;
  BodyReader in(body);
  for (std::string& text : in.strings("input"))
    plan.request.inputs.push_back({std::move(text), {}});
  if (plan.request.inputs.empty()) in.fail("input must not be empty", "input");
  if (plan.request.inputs.size() > kMaxInputs)
    in.fail("input must have at most 2048 entries", "input");
  read_common(in, *state.engine.load(), plan.request);
  plan.request.truncates = in.boolean("truncate", true);
  if (!in.ok()) return in.error();
  plan.answer = [model = std::get<std::string>(std::move(model))](const EmbeddingEnd& end) {
    json::Array vectors;
    for (const std::vector<float>& vector : end.embedded.vectors)
      vectors.push_back(list_of(vector));
    json::Object out{{"model", model}, {"embeddings", std::move(vectors)}};
    for (auto& [name, value] : ollama_totals(end)) out[name] = std::move(value);
    return json::Value(std::move(out));
  };
  return plan;
}

// The older form: one prompt, one vector.
PlanOrRefusal read_ollama_prompt(ServerState& state, const json::Value& body) {
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  EmbeddingPlan plan;
  BodyReader in(body);
  plan.request.inputs = {{in.string("prompt", ""), {}}};
  plan.request.truncates = true;
  if (plan.request.inputs.front().text.empty())
    in.fail("prompt must not be an empty string", "prompt");
  if (!in.ok()) return in.error();
  plan.answer = [](const EmbeddingEnd& end) {
    return json::Value(json::Object{{"embedding", list_of(end.embedded.vectors.front())}});
  };
  return plan;
}

void run(ServerState& state,
         std::string_view endpoint,
         ErrorShape shape,
         const std::shared_ptr<Exchange>& exchange,
         ReadFn read) {
  const auto refuse = [&](const ApiError& error) {
    refuse_embedding(state, endpoint, shape, *exchange, error);
  };
  auto body = parse_body(exchange->request());
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  if (state.engine.load()->summary().embedding_width == 0)
    return refuse(bad_request(std::string(kNoEmbeddings), "model"));
  if (state.options.logs_prompts) log::info(json::write(std::get<json::Value>(body)));
  auto plan = read(state, std::get<json::Value>(body));
  if (auto* error = std::get_if<ApiError>(&plan)) return refuse(*error);
  run_embedding(state, endpoint, shape, exchange, std::get<EmbeddingPlan>(std::move(plan)));
}

}  // namespace

void embeddings(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  run(state, "/v1/embeddings", ErrorShape::openai, exchange, read_openai);
}

void ollama_embed(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  run(state, "/api/embed", ErrorShape::ollama, exchange, read_ollama);
}

void ollama_embeddings(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  run(state, "/api/embeddings", ErrorShape::ollama, exchange, read_ollama_prompt);
}

}  // namespace kvasir::server
