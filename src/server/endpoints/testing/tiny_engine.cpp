#include "server/endpoints/testing/tiny_engine.h"

#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "server/detail/worker_pool.h"
#include "server/endpoints/testing/answers.h"
#include "server/http/server.h"

namespace kvasir::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemplate =
    "{% for m in messages %}"
    "{% if m.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}{{ '\n' }}"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | "
    "tojson }}}\n"
    "</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}";

// The bytes 0…255 as GPT-2 spells them, then special tokens.
std::string tokenizer_json() {
  json::Object vocab;
  int n_shifted = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    std::string spelling;
    append_utf8(spelling, static_cast<char32_t>(is_plain ? byte : 256 + n_shifted++));
    vocab.push_back(spelling, byte);
  }
  json::Array added;
  int id = 256;
  for (const char* special : {"<|im_start|>", "<|im_end|>", "<think>", "</think>"})
    added.push_back(json::Object{{"id", id++}, {"content", special}, {"special", true}});
  const json::Object byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return json::write(json::Object{
      {"added_tokens", added},
      {"pre_tokenizer", byte_level},
      {"decoder", byte_level},
      {"model", json::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", json::Array{}}}}});
}

std::unique_ptr<Engine> open_tiny() {
  const fs::path folder = fs::temp_directory_path() / ("kvasir-tiny-" + std::to_string(getpid()));
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(KVASIR_TEST_DATA) / "models/llama" / name, folder / name,
                  fs::copy_options::overwrite_existing);
  std::ofstream(folder / "tokenizer.json") << tokenizer_json();
  OpenOptions options;
  options.model = folder;
  options.chat_template = kTemplate;
  options.n_threads = 1;
  options.kv_budget_bytes = 64 << 20;
  options.prompt_cache_bytes = 64 << 20;
  options.prompt_cache_entries = 16;
  auto engine = Engine::open(options);
  KVASIR_CHECK(engine) << engine.error().what;
  fs::remove_all(folder);
  return *std::move(engine);
}

// Collects the events of one choice.
class Collector final : public GenerationListener {
 public:
  void on_event(GenerationEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    is_ended_ |= event.end.has_value();
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::vector<GenerationEvent> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_ended_; });
    return std::move(events_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GenerationEvent> events_;
  bool is_ended_ = false;
};

}  // namespace

Engine& tiny_engine() {
  static const std::unique_ptr<Engine> engine = open_tiny();
  return *engine;
}

TinyState::TinyState() {
  state.options.model_id = "tiny";
  state.engine = &tiny_engine();
}

TinyState::~TinyState() = default;

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  KVASIR_CHECK(value) << value.error().what << ": " << text;
  return *std::move(value);
}

GenerateRequest request_of(PlanFn plan, ServerState& state, std::string_view body) {
  PlanOrError made = plan(state, parsed(body));
  const auto* error = std::get_if<ApiError>(&made);
  KVASIR_CHECK(!error) << error->message;
  return std::move(std::get<Plan>(made).requests.front());
}

ApiError refusal_of(PlanFn plan, ServerState& state, std::string_view body) {
  PlanOrError made = plan(state, parsed(body));
  if (auto* error = std::get_if<ApiError>(&made)) return *error;
  ApiError accepted;
  accepted.message = "accepted";
  return accepted;
}

std::string run_plan(PlanFn plan, ServerState& state, std::string_view body) {
  PlanOrError made = plan(state, parsed(body));
  if (const auto* error = std::get_if<ApiError>(&made))
    return json::write(error_body(*error, ErrorShape::openai));
  Plan& run = std::get<Plan>(made);
  const auto collector = std::make_shared<Collector>();
  auto generation = state.engine.load()->start(run.requests.front(), collector);
  if (!generation) return generation.error().what;
  Transcript transcript;
  transcript.model = run.model;
  transcript.prompts = {generation->prompt};
  transcript.choices.resize(1);
  std::string out;
  if (run.stream) run.format->begin(transcript, out);
  for (const GenerationEvent& event : collector->wait()) {
    ChoiceTranscript& choice = transcript.choices.front();
    for (const text::OutputPiece& piece : event.pieces) append_block(choice, piece);
    choice.end = event.end;
    choice.prompt_logprobs.insert(choice.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                  event.prompt_logprobs.end());
    StreamEvent news;
    news.pieces = event.pieces;
    news.tokens = event.tokens;
    news.logprobs = event.logprobs;
    choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    news.is_end = event.end.has_value();
    if (run.stream) run.format->event(transcript, news, out);
  }
  if (!run.stream) return json::write(run.format->whole(transcript));
  run.format->finish(transcript, out);
  return out;
}

HttpRequest post_of(std::string_view body) {
  HttpRequest request;
  request.method = "POST";
  request.body = std::string(body);
  return request;
}

}  // namespace kvasir::server
