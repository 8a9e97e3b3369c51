#include <algorithm>
#include <fstream>
#include <utility>

#include "cache/cache_namespace.h"
#include "engine/engine_thread.h"
#include "formats/model_files.h"
#include "kv/kv_scheme.h"
#include "kvasir/kvasir.h"
#include "kvasir/text/text_model.h"
#include "kvasir/text/text_sink.h"
#include "model/model.h"
#include "sampling/request_sampling.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kMaxDefaultKvBytes = 8'000'000'000;
constexpr std::uint32_t kChatMaxTokens = 4096;    // SAMP-40
constexpr std::uint32_t kMinBoundaryTokens = 64;  // CACHE-13
constexpr std::chrono::milliseconds kCancelPoll{50};

std::uint64_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    std::uint64_t kib = 0;
    meminfo >> kib;
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kMaxDefaultKvBytes;
}

std::uint64_t kv_budget(const OpenOptions& options) {
  if (options.kv_budget_bytes > 0) return options.kv_budget_bytes;
  return std::min(available_bytes() / 4, kMaxDefaultKvBytes);
}

Result<std::unique_ptr<engine::Engine>> make_engine(const OpenOptions& options,
                                                    ops::Device& device,
                                                    model::Model& model,
                                                    const TextModel& text,
                                                    const Clock& clock) {
  const DType type = options.kv_type.value_or(
      model.exact_f32() || options.backend == Backend::ref ? DType::f32 : DType::bf16);
  KVASIR_TRY(auto store, kv::KvStore::make(device, model.kv_list(),
                                           {.type = type,
                                            .block_tokens = options.block_tokens,
                                            .budget_bytes = kv_budget(options),
                                            .split_tokens = 8192,
                                            .split_chunk = options.max_step_tokens}));
  engine::EngineParts parts{
      .executor = model, .clock = clock, .store = std::move(store), .cache = nullptr};
  if (options.prompt_cache_bytes > 0) {
    cache::PrefixCacheOptions cache_options;
    cache_options.max_bytes = options.prompt_cache_bytes;
    parts.cache = std::make_unique<cache::PrefixCache>(*parts.store, cache_options);
  }
  engine::EngineOptions engine_options;
  engine_options.max_rows = options.max_rows;
  engine_options.max_step_tokens = options.max_step_tokens;
  engine_options.prefill_share = options.prefill_share;
  engine_options.context_length = options.context_length;
  engine_options.eos_ids = text.eos_ids();
  engine_options.newline_ids = text.newline_ids();
  const std::string rope(model.rope_choice());
  engine_options.cache_namespace =
      cache::cache_namespace({.model_fp = std::filesystem::absolute(options.model).string(),
                              .numerics_id = device.numerics_id() + rope,
                              .cache_key = kv::KvScheme{type}.cache_key(),
                              .layers = {},
                              .adapter_ns = {},
                              .media_ns = {},
                              .method_ns = {}});
  return engine::Engine::make(std::move(parts), engine_options);
}

std::string finish_reason(const Outcome& outcome) {
  if (const Completed* completed = outcome.completed())
    return std::string(name_of(completed->reason));
  return outcome.cancelled() ? "cancelled" : "failed";
}

void end_choice(Choice& choice, const Outcome& outcome, Generated& generated) {
  choice.finish_reason = finish_reason(outcome);
  choice.seed = outcome.seed;
  if (const Failed* failed = outcome.failed()) choice.error = failed->code + ": " + failed->message;
  const Stats& stats = outcome.stats;
  generated.prompt_tokens = std::max(generated.prompt_tokens, stats.prompt_tokens);
  if (&choice == &generated.choices.front()) generated.cached_tokens = stats.cached_tokens;
  generated.generated_tokens += stats.generated_tokens;
  generated.prefill_ms = std::max(generated.prefill_ms, stats.prefill_ms);
  generated.decode_ms = std::max(generated.decode_ms, stats.decode_ms);
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<ops::Device> device;
  std::unique_ptr<model::Model> model;
  std::optional<TextModel> text;
  SteadyClock clock;
  ModelSummary summary;
  SamplingOptions default_sampling;
  std::unique_ptr<engine::EngineThread> thread;  // last: it uses all of the above

  bool is_windowed() const {
    return std::any_of(model->kv_list().begin(), model->kv_list().end(),
                       [](const KvLayerSpec& l) { return l.window > 0; });
  }
  Result<RenderedPrompt> prompt_of(const GenerateRequest& request) const;
  Result<GenerateOptions> options_of(const GenerateRequest& request) const;
};

Result<RenderedPrompt> Engine::Impl::prompt_of(const GenerateRequest& request) const {
  if (!request.messages.empty())
    return text->chat_prompt(request.messages, request.template_variables);
  RenderedPrompt prompt;
  KVASIR_TRY(prompt.tokens,
             text->tokenizer().encode(
                 request.prompt, {.add_special = true, .parse_special = request.parse_special}));
  return prompt;
}

Result<GenerateOptions> Engine::Impl::options_of(const GenerateRequest& request) const {
  KVASIR_TRY(RenderedPrompt prompt, prompt_of(request));
  GenerateOptions options;
  options.prompt = std::move(prompt.tokens);
  options.max_tokens = request.max_tokens;
  if (!request.messages.empty()) options.default_max_tokens = kChatMaxTokens;
  options.sampling = request.sampling;
  const auto n_prompt = static_cast<std::uint32_t>(options.prompt.size());
  if (n_prompt < kMinBoundaryTokens) return options;
  if (prompt.stable_tokens > 0) options.snapshot_at = {prompt.stable_tokens};
  // A windowed model can serve the very same prompt again only from a state captured before its
  // last token (C18).
  if (prompt.stable_tokens == 0 && is_windowed()) options.snapshot_at = {n_prompt - 1};
  return options;
}

Result<std::unique_ptr<Engine>> Engine::open(const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  KVASIR_TRY(impl->device, make_device(options.backend, options.n_threads, options.isa));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(options.model));
  KVASIR_TRY(impl->text, TextModel::load(files));
  KVASIR_TRY(impl->model, model::Model::load(files, *impl->device,
                                             {.max_context = options.context_length,
                                              .max_step_tokens = options.max_step_tokens,
                                              .max_wanted = options.max_rows,
                                              .progress = options.progress,
                                              .exact_f32 = false}));
  KVASIR_TRY(auto engine,
             make_engine(options, *impl->device, *impl->model, *impl->text, impl->clock));
  const auto generation = sampling::from_generation_config(files.generation_config());
  impl->default_sampling =
      sampling::merge_sampling({&generation, 1}, sampling::Surface::chat).options;
  impl->summary = {.name = options.model.filename().string(),
                   .architecture = files.config().string_or("model_type", "?"),
                   .backend = impl->device->numerics_id(),
                   .weight_bytes = impl->model->weight_bytes(),
                   .context_length = static_cast<std::uint32_t>(engine->context_limit().context()),
                   .vocab = impl->model->vocab_size(),
                   .has_chat_template = impl->text->has_template()};
  impl->thread = std::make_unique<engine::EngineThread>(std::move(engine), impl->clock);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<Generated> Engine::generate(const GenerateRequest& request,
                                   const OnText& on_text,
                                   const std::atomic<bool>* cancel) {
  KVASIR_TRY(GenerateOptions options, impl_->options_of(request));
  KVASIR_TRY(const text::StopMatcher stops, text::StopMatcher::make(request.stops));
  const auto mailbox =
      std::make_shared<Mailbox>();  // shared with the sinks, which may outlive this call
  mailbox->on_drained([thread = impl_->thread.get()] { thread->wake(); });
  std::vector<std::unique_ptr<Sink>> sinks;
  for (std::uint32_t i = 0; i < std::max(request.n, 1u); ++i) {
    sinks.push_back(
        std::make_unique<TextSink>(i, text::Detokenizer(impl_->text->tokenizer()), stops, mailbox));
  }
  Generated generated;
  generated.choices.resize(sinks.size());
  std::size_t n_open = sinks.size();
  KVASIR_TRY(const auto ids, impl_->thread->submit_choices(std::move(options), std::move(sinks)));
  bool is_cancelled = false;
  while (n_open > 0) {
    if (cancel && *cancel && !is_cancelled) {
      is_cancelled = true;
      for (const RequestId id : ids) impl_->thread->cancel(id, CancelReason::requested);
    }
    std::optional<TextEvent> event = mailbox->wait(kCancelPoll);
    if (!event) continue;
    Choice& choice = generated.choices[event->choice];
    choice.text += event->text;
    choice.tokens.insert(choice.tokens.end(), event->tokens.begin(), event->tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), event->logprobs.begin(), event->logprobs.end());
    const TextDelta delta{event->choice, event->text, event->tokens, event->logprobs};
    if (on_text && !on_text(delta))
      impl_->thread->cancel(ids[event->choice], CancelReason::consumer_closed);
    if (!event->outcome) continue;
    end_choice(choice, *event->outcome, generated);
    --n_open;
  }
  return generated;
}

Result<std::vector<TokenPiece>> Engine::tokenize(std::string_view text,
                                                 bool add_special,
                                                 bool parse_special) const {
  const text::Tokenizer& tokenizer = impl_->text->tokenizer();
  KVASIR_TRY(const auto ids,
             tokenizer.encode(text, {.add_special = add_special, .parse_special = parse_special}));
  std::vector<TokenPiece> pieces;
  for (const TokenId id : ids) pieces.push_back({id, tokenizer.token_bytes(id)});
  return pieces;
}

Result<std::string> Engine::render(const json::Array& messages,
                                   const json::Object& variables) const {
  KVASIR_TRY(text::Rendered rendered, impl_->text->render(messages, variables));
  return std::move(rendered.text);
}

Result<std::uint64_t> Engine::count_tokens(const GenerateRequest& request) const {
  KVASIR_TRY(const RenderedPrompt prompt, impl_->prompt_of(request));
  return std::uint64_t{prompt.tokens.size()};
}

const ModelSummary& Engine::summary() const noexcept { return impl_->summary; }
const SamplingOptions& Engine::default_sampling() const noexcept { return impl_->default_sampling; }

}  // namespace kvasir
