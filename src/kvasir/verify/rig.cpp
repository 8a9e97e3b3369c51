#include "kvasir/verify/rig.h"

#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "formats/model_files.h"
#include "kvasir/kv/open_scheme.h"
#include "kvasir/verify/planted_fault.h"

namespace kvasir::verify {
namespace {

constexpr std::uint32_t kContext = 1024;  // tokens a row may have in a check
constexpr std::uint64_t kPoolRows =
    10;  // rows of that length the pool holds: 8 running and the cache's

class Recorder final : public Sink {
 public:
  explicit Recorder(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  Result<SinkReply> commit(std::span<const TokenId> tokens,
                           std::span<const Logprobs> logprobs) override {
    answer_->tokens.insert(answer_->tokens.end(), tokens.begin(), tokens.end());
    answer_->logprobs.insert(answer_->logprobs.end(), logprobs.begin(), logprobs.end());
    return SinkReply::more;
  }
  void finish(Outcome outcome) noexcept override {
    answer_->outcome = std::move(outcome);
    answer_->finished = true;
  }

 private:
  std::shared_ptr<Answer> answer_;  // shared with the check that waits for it
};

std::uint32_t bits(float x) noexcept { return std::bit_cast<std::uint32_t>(x); }

bool same_logprobs(const Logprobs& a, const Logprobs& b) {
  const auto same_entry = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && bits(x.logprob) == bits(y.logprob);
  };
  return bits(a.logprob) == bits(b.logprob) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), same_entry);
}

}  // namespace

bool same_bits(const Answer& a, const Answer& b) {
  return a.tokens == b.tokens && std::equal(a.logprobs.begin(), a.logprobs.end(),
                                            b.logprobs.begin(), b.logprobs.end(), same_logprobs);
}

Result<std::unique_ptr<Rig>> Rig::open(const RigOptions& options) {
  std::unique_ptr<Rig> rig(new Rig);
  const OpenOptions& o = options.open;
  KVASIR_TRY(rig->device_, make_device(o.backend, options.n_threads, o.isa,
                                       {options.use_graphs, o.activations, o.gpus}));
  if (options.plant_row_count_fault)
    rig->device_ = plant(Fault::row_count, std::move(rig->device_));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
  KVASIR_TRY(rig->model_, model::Model::load(files, *rig->device_,
                                             {.max_context = 0,
                                              .max_step_tokens = o.step_tokens(),
                                              .max_wanted = o.max_rows + engine::kPromptLogitRows,
                                              .progress = o.progress,
                                              .exact_f32 = false}));
  KVASIR_TRY(const kv::KvScheme scheme,
             open_scheme(o, /*exact_f32=*/false, rig->model_->kv_list()));
  const std::uint32_t context = std::min(kContext, rig->model_->max_positions());
  const std::size_t budget =
      budget_of_rows(rig->model_->kv_list(), scheme, kPoolRows, context + 2 * options.block_tokens);
  KVASIR_TRY(auto store, kv::KvStore::make(*rig->device_, rig->model_->kv_list(),
                                           {.scheme = scheme,
                                            .block_tokens = options.block_tokens,
                                            .budget_bytes = budget,
                                            .split_tokens = context,
                                            .split_chunk = o.step_tokens()}));
  rig->transition_ = store->transition();
  if (options.runs_ahead) rig->behind_ = std::make_unique<RunsBehind>(*rig->model_);
  Executor& executor = rig->behind_ ? static_cast<Executor&>(*rig->behind_) : *rig->model_;
  engine::EngineParts parts{
      .executor = executor, .clock = rig->clock_, .store = std::move(store), .cache = nullptr};
  if (options.with_cache)
    parts.cache = std::make_unique<cache::PrefixCache>(*parts.store, cache::PrefixCacheOptions{});
  engine::EngineOptions engine_options;
  engine_options.max_rows = o.max_rows;
  engine_options.max_step_tokens = o.step_tokens();
  engine_options.prefill_share = o.prompt_tokens_beside();
  engine_options.context_length = context;
  engine_options.cache_namespace = "same-bits";
  KVASIR_TRY(rig->engine_, engine::Engine::make(std::move(parts), engine_options));
  return rig;
}

Result<std::shared_ptr<Answer>> Rig::submit(GenerateOptions options) {
  auto answer = std::make_shared<Answer>();  // shared with its sink
  KVASIR_TRY_DO(engine_->submit(std::move(options), std::make_unique<Recorder>(answer)));
  return answer;
}

Result<std::vector<std::shared_ptr<Answer>>> Rig::submit_choices(GenerateOptions options,
                                                                 std::uint32_t n) {
  std::vector<std::shared_ptr<Answer>> answers;  // shared with their sinks
  std::vector<std::unique_ptr<Sink>> sinks;
  for (std::uint32_t i = 0; i < n; ++i) {
    answers.push_back(std::make_shared<Answer>());
    sinks.push_back(std::make_unique<Recorder>(answers.back()));
  }
  KVASIR_TRY_DO(engine_->submit_choices(std::move(options), std::move(sinks)));
  return answers;
}

Status Rig::step() {
  const engine::StepReport report = engine_->step();
  most_rows_ = std::max(most_rows_, report.n_rows);
  if (report.failure) return *report.failure;
  return {};
}

Status Rig::run_until_idle() {
  while (engine_->has_requests()) KVASIR_TRY_DO(step());
  return {};
}

Result<Answer> Rig::run_alone(GenerateOptions options) {
  KVASIR_TRY(const auto answer, submit(std::move(options)));
  KVASIR_TRY_DO(run_until_idle());
  return *answer;
}

}  // namespace kvasir::verify
