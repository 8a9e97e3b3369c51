#include <algorithm>
#include <future>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/pinned.h"
#include "base/thread_pool.h"
#include "cache/cache_namespace.h"
#include "codec/kv_codec.h"
#include "engine/engine_thread.h"
#include "fit/machine.h"
#include "fit/memory.h"
#include "fit/speed.h"
#include "formats/model_files.h"
#include "kvasir/embed/embedding_run.h"
#include "kvasir/fit/process_memory.h"
#include "kvasir/fit_model.h"
#include "kvasir/kvasir.h"
#include "kvasir/text/mailbox.h"
#include "kvasir/text/text_model.h"
#include "kvasir/text/text_sink.h"
#include "model/model.h"
#include "sampling/request_sampling.h"
#include "text/reasoning_budget.h"

namespace kvasir {
namespace {

constexpr std::uint32_t kChatMaxTokens = 4096;  // SAMP-40
constexpr std::uint32_t kAllThatFits = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kMinBoundaryTokens = 64;  // CACHE-13
constexpr std::chrono::milliseconds kCancelPoll{50};

std::optional<std::vector<cache::NamespaceParts::Layer>> namespace_layers(
    const kv::KvScheme& scheme) {
  if (scheme.kind != kv::KvSchemeKind::affine_config) return std::nullopt;
  std::vector<cache::NamespaceParts::Layer> layers;
  for (const kv::KvLayerBits& entry : scheme.layers)
    layers.push_back({entry.layer, entry.bits, entry.group});
  return layers;
}

Result<std::unique_ptr<engine::Engine>> make_engine(const OpenOptions& options,
                                                    const SizedModel& sized,
                                                    ops::Device& device,
                                                    model::Model& model,
                                                    const TextModel& text,
                                                    const Clock& clock) {
  const kv::KvScheme& scheme = sized.scheme;
  KVASIR_TRY(auto store,
             kv::KvStore::make(device, model.kv_list(), store_options_of(sized, options)));
  engine::EngineParts parts{
      .executor = model, .clock = clock, .store = std::move(store), .cache = nullptr};
  if (options.prompt_cache_bytes > 0) {
    cache::PrefixCacheOptions cache_options;
    cache_options.max_bytes = options.prompt_cache_bytes;
    if (options.prompt_cache_entries > 0) cache_options.max_entries = options.prompt_cache_entries;
    KVASIR_TRY(auto policy, cache::make_retention_policy(options.cache_policy));
    parts.cache =
        std::make_unique<cache::PrefixCache>(*parts.store, cache_options, std::move(policy));
  }
  engine::EngineOptions engine_options;
  engine_options.max_rows = options.max_rows;
  engine_options.max_step_tokens = options.step_tokens();
  engine_options.prefill_share = options.prompt_tokens_beside();
  engine_options.n_sampling_threads = default_thread_count();
  engine_options.context_length =
      static_cast<std::uint32_t>(fit::max_context(sized.facts, sized.usable_bytes));
  engine_options.step_bytes = [facts = sized.facts](std::uint64_t n_tokens,
                                                    std::span<const std::uint32_t> ends) {
    std::uint64_t bytes = fit::weight_read_bytes(facts, n_tokens);
    for (const std::uint32_t end : ends) bytes += fit::kv_read_bytes(facts, end);
    return bytes;
  };
  engine_options.queue_limit = options.queue_limit;
  engine_options.snapshot_every = options.snapshot_every;
  if (options.queue_timeout.count() > 0) engine_options.queue_timeout = options.queue_timeout;
  engine_options.eos_ids = text.eos_ids();
  engine_options.newline_ids = text.newline_ids();
  const std::string rope(model.rope_choice());
  engine_options.cache_namespace =
      cache::cache_namespace({.model_fp = std::filesystem::absolute(options.model).string(),
                              .numerics_id = device.numerics_id() + rope,
                              .cache_key = scheme.cache_key(),
                              .layers = namespace_layers(scheme),
                              .adapter_ns = {},
                              .media_ns = {},
                              .method_ns = {}});
  return engine::Engine::make(std::move(parts), engine_options);
}

// How each layer is kept in the end, for people.
std::vector<std::string> layer_names(const kv::KvScheme& scheme, const KvList& list) {
  std::vector<std::string> out;
  const auto forms = kv::forms_of(scheme, list);
  for (std::size_t i = 0; forms && i < forms->size(); ++i) {
    const kv::KvLayerForm& form = (*forms)[i];
    if (!form.has_encoded()) {
      out.emplace_back(name_of(scheme.type));
      continue;
    }
    const std::string keys = codec::signature_part(form.k), values = codec::signature_part(form.v);
    out.push_back(keys == values ? keys : keys + "," + values);
  }
  return out;
}

// FIT-22, and what is worth a warning.
Status check_memory(const SizedModel& sized) {
  KVASIR_TRY_DO(fit::check_load(sized.name, sized.facts, sized.usable_bytes));
  const std::string warning =
      fit::short_context_warning(sized.name, sized.facts, sized.usable_bytes);
  if (!warning.empty()) log::warning(warning);
  const std::uint64_t left = fit::left_for_kv(sized.facts, sized.usable_bytes);
  if (sized.facts.kv_budget_bytes > left)
    log::warning("--kv-budget " + format_bytes(sized.facts.kv_budget_bytes) + " is more than the " +
                 format_bytes(left) + " that are left of " + format_bytes(sized.usable_bytes));
  return {};
}

void take_event(Choice& choice, GenerationEvent& event) {
  for (text::OutputPiece& piece : event.pieces) {
    if (piece.kind == text::OutputKind::content) choice.text += piece.text;
    if (piece.kind == text::OutputKind::reasoning) choice.reasoning += piece.text;
    if (piece.kind == text::OutputKind::tool_call) choice.tool_calls.push_back(piece.call);
  }
  choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  choice.logprobs.insert(choice.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
}

bool tell(const Engine::OnText& on_text, const GenerationEvent& event) {
  if (!on_text) return true;
  bool goes_on = true;
  std::span<const TokenId> tokens = event.tokens;
  for (const text::OutputPiece& piece : event.pieces) {
    if (piece.kind == text::OutputKind::tool_call) continue;
    goes_on &= on_text({event.choice, piece.kind, piece.text, std::exchange(tokens, {})});
  }
  if (!tokens.empty()) goes_on &= on_text({event.choice, {}, {}, tokens});
  return goes_on;
}

void end_choice(Choice& choice, ChoiceEnd& end, Generated& generated) {
  choice.finish_reason = std::move(end.finish_reason);
  const Outcome& outcome = end.outcome;
  choice.seed = outcome.seed;
  if (const Failed* failed = outcome.failed()) choice.error = failed->code + ": " + failed->message;
  const Stats& stats = outcome.stats;
  generated.prompt_tokens = std::max(generated.prompt_tokens, stats.prompt_tokens);
  if (&choice == &generated.choices.front()) generated.cached_tokens = stats.cached_tokens;
  generated.generated_tokens += stats.generated_tokens;
  generated.prefill_ms = std::max(generated.prefill_ms, stats.prefill_ms);
  generated.decode_ms = std::max(generated.decode_ms, stats.decode_ms);
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::string piece_of(const text::Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.piece(*id)) : std::string();
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<ops::Device> device;
  std::unique_ptr<model::Model> model;
  std::optional<TextModel> text;
  std::optional<Embedder> embedder;  // of an embedding model
  std::size_t max_rows = 1;
  SteadyClock clock;
  OpenOptions opened_with;
  SizedModel sized;
  ModelSummary summary;
  std::vector<sampling::PartialSampling> sampling_layers;  // server flags, then the model's own
  SamplingOptions default_sampling;
  std::unique_ptr<engine::EngineThread> thread;  // last: it uses all of the above

  // Whether some layer cannot be resumed at every position.
  bool needs_snapshots() const {
    return std::any_of(model->kv_list().begin(), model->kv_list().end(),
                       [](const KvLayerSpec& l) { return l.window > 0 || l.is_recurrent(); });
  }
  Status read_sampling_layers(const OpenOptions& options, const json::Value& generation_config);
  void summarize(const OpenOptions& options, const formats::ModelFiles& files);
  Result<RenderedPrompt> prompt_of(const GenerateRequest& request) const;
  Result<EmbeddingWork> embedding_work_of(const EmbedRequest& request) const;
  GenerateOptions options_of(const GenerateRequest& request, RenderedPrompt prompt) const;
  Result<std::shared_ptr<const TokenConstraint>> constraint_of(const GenerateRequest& request,
                                                               bool starts_in_reasoning) const;
  Result<std::vector<std::unique_ptr<Sink>>> sinks_of(
      const GenerateRequest& request,
      bool starts_in_reasoning,
      const std::shared_ptr<GenerationListener>& listener) const;
};

Status Engine::Impl::read_sampling_layers(const OpenOptions& options,
                                          const json::Value& generation_config) {
  KVASIR_TRY(sampling::PartialSampling flags,
             sampling::parse_sampling(options.sampling_flags, sampling::Surface::chat,
                                      model->vocab_size()));
  sampling_layers = {std::move(flags), sampling::from_generation_config(generation_config)};
  default_sampling = sampling::merge_sampling(sampling_layers, sampling::Surface::chat).options;
  return {};
}

void Engine::Impl::summarize(const OpenOptions& options, const formats::ModelFiles& files) {
  const std::filesystem::path path = std::filesystem::absolute(options.model).lexically_normal();
  summary.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  summary.path = path.string();
  summary.architecture = files.config().string_or("model_type", "?");
  summary.backend = device->label();
  summary.numerics = device->numerics_id() + std::string(model->rope_choice());
  summary.kv_type = sized.scheme.cache_key();
  summary.kv_quant = options.kv_quant;
  summary.kv_layers = layer_names(sized.scheme, sized.list);
  summary.usable_bytes = sized.usable_bytes;
  summary.weight_bytes = model->weight_bytes();
  summary.model_context_length = model->max_positions();
  summary.vocab = model->vocab_size();
  summary.has_random_weights = files.has_random_weights();
  if (summary.has_random_weights)
    log::warning(path.string() + ": random weights, made by kvasir synth");
  summary.chat_template = std::string(text->template_source());
  summary.bos_token = piece_of(text->tokenizer(), text->tokenizer().bos());
  summary.eos_token = piece_of(text->tokenizer(), text->tokenizer().eos());
  summary.output = text->output();
  if (embedder) summary.embedding_width = embedder->width();
}

// Every input is checked before the first runs.
Result<EmbeddingWork> Engine::Impl::embedding_work_of(const EmbedRequest& request) const {
  if (!embedder) return unsupported(std::string(kNoEmbeddings));
  KVASIR_TRY_DO(embedder->check(request));
  const engine::ContextLimit& limit = thread->context_limit();
  EmbeddingWork work;
  work.dimensions = request.dimensions;
  work.max_rows = max_rows;
  if (request.timeout) work.deadline = clock.now() + *request.timeout;
  for (const EmbedInput& input : request.inputs) {
    KVASIR_TRY(std::vector<TokenId> tokens, embedder->tokens_of(request, input, limit.context()));
    if (std::optional<engine::Refusal> refusal = limit.refuse(tokens.size(), 0))
      return Error{Errc::invalid_argument, std::move(refusal->message), refusal->code};
    const auto unknown = std::find_if(tokens.begin(), tokens.end(),
                                      [&](TokenId token) { return token >= model->vocab_size(); });
    if (unknown != tokens.end())
      return invalid("input token id " + std::to_string(*unknown) + " is out of range");
    work.inputs.push_back(std::move(tokens));
  }
  return work;
}

Result<RenderedPrompt> Engine::Impl::prompt_of(const GenerateRequest& request) const {
  if (!request.messages.empty()) return text->chat_prompt(request);
  RenderedPrompt prompt;
  prompt.tokens = request.prompt_tokens;
  if (!prompt.tokens.empty()) return prompt;
  KVASIR_TRY(prompt.tokens,
             text->tokenizer().encode(
                 request.prompt, {.add_special = true, .parse_special = request.parse_special}));
  return prompt;
}

GenerateOptions Engine::Impl::options_of(const GenerateRequest& request,
                                         RenderedPrompt prompt) const {
  GenerateOptions options;
  options.prompt = std::move(prompt.tokens);
  options.max_tokens = request.max_tokens;
  if (!request.messages.empty()) options.default_max_tokens = kChatMaxTokens;
  if (request.default_max_tokens) options.default_max_tokens = *request.default_max_tokens;
  if (request.until_context_full) options.default_max_tokens = kAllThatFits;
  options.sampling = request.sampling;
  options.prompt_logprobs = request.prompt_logprobs;
  options.prompt_cache = request.uses_cache;
  if (request.timeout) options.deadline = clock.now() + *request.timeout;
  const auto n_prompt = static_cast<std::uint32_t>(options.prompt.size());
  if (n_prompt < kMinBoundaryTokens) return options;
  // Some models can serve the very same prompt again only from a state captured before its last
  // token (C18).
  const bool has_boundary = prompt.stable_tokens > 0 && prompt.stable_tokens < n_prompt;
  if (has_boundary) options.snapshot_at = {prompt.stable_tokens};
  if (!has_boundary && needs_snapshots()) options.snapshot_at = {n_prompt - 1};
  return options;
}

Result<std::shared_ptr<const TokenConstraint>> Engine::Impl::constraint_of(
    const GenerateRequest& request, bool starts_in_reasoning) const {
  if (!request.reasoning_budget || request.messages.empty())
    return std::shared_ptr<const TokenConstraint>();
  return text::make_reasoning_constraint(text->tokenizer(), {.format = text->output().reasoning,
                                                             .starts_open = starts_in_reasoning,
                                                             .n_tokens = *request.reasoning_budget,
                                                             .vocab = model->vocab_size()});
}

Result<std::vector<std::unique_ptr<Sink>>> Engine::Impl::sinks_of(
    const GenerateRequest& request,
    bool starts_in_reasoning,
    const std::shared_ptr<GenerationListener>& listener) const {
  text::OutputOptions output;
  const bool is_chat = !request.messages.empty();
  if (is_chat) output.format = text->output();
  output.tools = request.tools;
  output.parallel_tool_calls = request.parallel_tool_calls;
  output.starts_in_reasoning = starts_in_reasoning;
  output.splits_reasoning = request.splits_reasoning;
  output.stops = request.stops;
  std::vector<std::unique_ptr<Sink>> sinks;
  for (std::uint32_t i = 0; i < std::max(request.n, 1u); ++i) {
    output.id_seed = random_seed();
    KVASIR_TRY(auto parser, text::OutputParser::make(text->tokenizer(), output));
    sinks.push_back(std::make_unique<TextSink>(i, std::move(parser), listener));
  }
  return sinks;
}

Result<std::unique_ptr<Engine>> Engine::open(const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->opened_with = options;
  KVASIR_TRY(impl->device, make_device(options));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(options.model));
  bytes_at_start();  // read before there is anything to count twice
  const std::uint64_t heap_before = heap_bytes();
  KVASIR_TRY(impl->text, TextModel::load(files, {.chat_template = options.chat_template,
                                                 .tool_parser = options.tool_parser,
                                                 .use_default_chat_template =
                                                     options.use_default_chat_template}));
  KVASIR_TRY(impl->sized, size_model(files, *impl->device, options, heap_bytes() - heap_before));
  KVASIR_TRY_DO(check_memory(impl->sized));  // before anything large is taken
  std::optional<PinnedScope> pinned;
  if (fit::pins_weights(options.pins_weights, impl->sized.facts.weight_bytes,
                        fit::read_machine_memory(), pin_limit_bytes()))
    pinned.emplace();
  KVASIR_TRY(impl->model,
             model::Model::load(files, *impl->device,
                                {.max_context = options.context_length,
                                 .max_step_tokens = options.step_tokens(),
                                 .max_wanted = options.max_rows + engine::kPromptLogitRows,
                                 .progress = options.progress,
                                 .exact_f32 = false}));
  pinned.reset();
  if (impl->model->output() == OutputKind::hidden) {
    KVASIR_TRY(impl->embedder, Embedder::make(files, *impl->model, impl->text->tokenizer()));
  }
  impl->max_rows = std::min<std::size_t>(options.max_rows, options.queue_limit);
  KVASIR_TRY(auto engine, make_engine(options, impl->sized, *impl->device, *impl->model,
                                      *impl->text, impl->clock));
  KVASIR_TRY_DO(impl->read_sampling_layers(options, files.generation_config()));
  impl->summarize(options, files);
  impl->summary.context_length = static_cast<std::uint32_t>(engine->context_limit().context());
  impl->thread = std::make_unique<engine::EngineThread>(std::move(engine), impl->clock);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<Generation> Engine::start(const GenerateRequest& request,
                                 std::shared_ptr<GenerationListener> listener) {
  if (impl_->embedder) return unsupported(std::string(kNoText));
  KVASIR_TRY(RenderedPrompt prompt, impl_->prompt_of(request));
  KVASIR_TRY(auto sinks, impl_->sinks_of(request, prompt.starts_in_reasoning, listener));
  Generation generation;
  generation.prompt = prompt.tokens;
  const bool starts_open = prompt.starts_in_reasoning;
  GenerateOptions options = impl_->options_of(request, std::move(prompt));
  KVASIR_TRY(options.constraint, impl_->constraint_of(request, starts_open));
  KVASIR_TRY(generation.ids, impl_->thread->submit_choices(std::move(options), std::move(sinks)));
  return generation;
}

void Engine::cancel(RequestId choice, CancelReason reason) {
  impl_->thread->cancel(choice, reason);
}
void Engine::cancel(const Generation& generation, CancelReason reason) {
  for (const RequestId id : generation.ids) cancel(id, reason);
}
void Engine::wake() { impl_->thread->wake(); }

Result<Generated> Engine::generate(const GenerateRequest& request,
                                   const OnText& on_text,
                                   const std::atomic<bool>* cancel_flag,
                                   const OnProgress& on_progress) {
  // Shared with the sinks, which may outlive this call.
  const auto mailbox =
      std::make_shared<Mailbox>([thread = impl_->thread.get()] { thread->wake(); });
  KVASIR_TRY(const Generation generation, start(request, mailbox));
  Generated generated;
  generated.choices.resize(generation.ids.size());
  std::size_t n_open = generation.ids.size();
  bool is_cancelled = false;
  while (n_open > 0) {
    if (cancel_flag && *cancel_flag && !std::exchange(is_cancelled, true))
      cancel(generation, CancelReason::requested);
    std::optional<GenerationEvent> event = mailbox->wait(kCancelPoll);
    const auto progress = mailbox->take_progress();
    if (progress && on_progress) on_progress(progress->first, progress->second);
    if (!event) continue;
    Choice& choice = generated.choices[event->choice];
    take_event(choice, *event);
    if (!tell(on_text, *event))
      cancel(generation.ids[event->choice], CancelReason::consumer_closed);
    if (!event->end) continue;
    end_choice(choice, *event->end, generated);
    --n_open;
  }
  return generated;
}

Result<Embedding> Engine::start_embedding(const EmbedRequest& request, OnEmbedded on_done) {
  KVASIR_TRY(EmbeddingWork work, impl_->embedding_work_of(request));
  auto run = std::make_shared<EmbeddingRun>(*impl_->thread, *impl_->embedder, std::move(work),
                                            std::move(on_done));
  KVASIR_TRY_DO(run->start());
  return run;
}

void Engine::cancel(const Embedding& embedding, CancelReason reason) { embedding->cancel(reason); }

Result<Embedded> Engine::embed(const EmbedRequest& request, const std::atomic<bool>* cancel_flag) {
  const auto promise = std::make_shared<std::promise<EmbeddingEnd>>();  // shared with the rows
  auto future = promise->get_future();
  KVASIR_TRY(const Embedding embedding, start_embedding(request, [promise](EmbeddingEnd end) {
               promise->set_value(std::move(end));
             }));
  bool is_cancelled = false;
  while (future.wait_for(kCancelPoll) != std::future_status::ready) {
    if (cancel_flag && *cancel_flag && !std::exchange(is_cancelled, true))
      cancel(embedding, CancelReason::requested);
  }
  EmbeddingEnd end = future.get();
  if (end.outcome.completed()) return std::move(end.embedded);
  const Failed* failed = end.outcome.failed();
  if (!failed) return Error{Errc::cancelled, "the request was cancelled"};
  return Error{Errc::device, failed->code + ": " + failed->message};
}

Result<RequestSampling> Engine::sampling_of(const json::Value& body, Surface surface) const {
  const auto of =
      surface == Surface::chat ? sampling::Surface::chat : sampling::Surface::completions;
  KVASIR_TRY(sampling::PartialSampling own,
             sampling::parse_sampling(body, of, impl_->model->vocab_size()));
  const bool is_own = own.max_tokens.has_value();
  std::vector<sampling::PartialSampling> layers{std::move(own)};
  layers.insert(layers.end(), impl_->sampling_layers.begin(), impl_->sampling_layers.end());
  const sampling::ResolvedSampling resolved = sampling::merge_sampling(layers, of);
  RequestSampling out{resolved.options, {}, {}, false, resolved.stream};
  if (resolved.max_tokens == sampling::kUntilContextFull) {
    out.until_context_full = true;
  } else if (resolved.max_tokens_explicit) {
    auto& to = is_own ? out.max_tokens : out.default_max_tokens;  // only what is asked for may fail
    to = static_cast<std::uint32_t>(std::min<std::int64_t>(resolved.max_tokens, kAllThatFits));
  }
  return out;
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

std::string Engine::detokenize(std::span<const TokenId> ids) const {
  return impl_->text->tokenizer().decode(ids, {.skip_special = false, .is_start = true});
}

std::string Engine::token_bytes(TokenId id) const {
  return impl_->text->tokenizer().token_bytes(id);
}

std::string Engine::token_piece(TokenId id) const {
  return std::string(impl_->text->tokenizer().piece(id));
}

Result<std::string> Engine::render(const GenerateRequest& request) const {
  KVASIR_TRY(text::Rendered rendered, impl_->text->render(request));
  return std::move(rendered.text);
}

Result<std::uint64_t> Engine::count_tokens(const GenerateRequest& request) const {
  KVASIR_TRY(const RenderedPrompt prompt, impl_->prompt_of(request));
  return std::uint64_t{prompt.tokens.size()};
}

fit::FitReport Engine::fit() const {
  const Impl& i = *impl_;
  const std::uint64_t context =
      std::min<std::uint64_t>(fit::kUsualContext, i.summary.context_length);
  fit::FitReport report = report_of(i.sized, i.opened_with, i.opened_with.machine, context);
  report.n_threads = i.device->n_threads();
  return report;
}

const fit::MachineSpeed& Engine::machine() const noexcept { return impl_->opened_with.machine; }

std::string Engine::startup_line() const {
  const std::string line =
      fit::startup_line(impl_->summary.name, impl_->sized.facts, impl_->opened_with.machine,
                        impl_->summary.context_length, /*is_auto_picked=*/false);
  return impl_->summary.has_random_weights ? line + " · random weights" : line;
}

const ModelSummary& Engine::summary() const noexcept { return impl_->summary; }
const SamplingOptions& Engine::default_sampling() const noexcept { return impl_->default_sampling; }
engine::EngineSnapshot Engine::snapshot() const { return impl_->thread->snapshot(); }

void Engine::hold() {
  impl_->thread->post([](engine::Engine& engine) { engine.hold(); });
}
void Engine::release_hold() {
  impl_->thread->post([](engine::Engine& engine) { engine.release_hold(); });
}
void Engine::flush_cache() {
  impl_->thread->post([](engine::Engine& engine) {
    if (engine.cache()) engine.cache()->clear();
  });
}
void Engine::close() { impl_->thread->close(); }
void Engine::shutdown(Clock::Duration patience) { impl_->thread->shutdown(patience); }

}  // namespace kvasir
