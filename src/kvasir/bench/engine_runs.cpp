#include "kvasir/bench/engine_runs.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "contract/generate_options.h"
#include "contract/sink.h"
#include "formats/model_files.h"
#include "kv/kv_plan.h"
#include "kv/kv_store.h"
#include "kvasir/kv/open_scheme.h"
#include "model/families.h"

namespace kvasir::bench {
namespace {

// What the consumers of a run have seen.
struct Tally {
  bool is_resting = false;  // nobody takes tokens beyond the first
  std::uint32_t n_first = 0, n_over = 0;
  std::uint64_t n_tokens = 0;
  Status failure;
};

class TallySink final : public Sink {
 public:
  explicit TallySink(Tally& tally) : tally_(tally) {}
  Result<SinkReply> commit(std::span<const TokenId> tokens, std::span<const Logprobs>) override {
    if (!std::exchange(has_first_, true)) ++tally_.n_first;
    tally_.n_tokens += tokens.size();
    return SinkReply::more;
  }
  bool is_paused() const noexcept override { return has_first_ && tally_.is_resting; }
  void finish(Outcome outcome) noexcept override {
    ++tally_.n_over;
    if (!outcome.completed())
      tally_.failure = Error{Errc::device, outcome.failed() ? outcome.failed()->message : "ended"};
  }

 private:
  Tally& tally_;
  bool has_first_ = false;
};

// Greedy, and no token ends it.
Status submit(EngineRig& rig,
              std::uint32_t n_requests,
              std::uint32_t n_prefill,
              std::uint32_t n_tokens,
              Tally& tally) {
  GenerateOptions options;
  const TokenId range = std::max<TokenId>(rig.model->vocab_size() - 1, 1);
  for (std::uint32_t i = 0; i < n_prefill; ++i) options.prompt.push_back((1 + i * 7919u) % range);
  options.prefill_chunk = rig.model->max_step_tokens();
  options.max_tokens = n_tokens;
  options.sampling.temperature = 0;
  options.eos_ids.emplace();
  for (std::uint32_t r = 0; r < n_requests; ++r) {
    KVASIR_TRY_DO(rig.engine->submit(options, std::make_unique<TallySink>(tally)));
  }
  return {};
}

template <class Done>
Status step_until(EngineRig& rig, const Tally& tally, Done&& done) {
  while (!done()) {
    const engine::StepReport report = rig.engine->step();
    if (report.failure) return *report.failure;
    if (!tally.failure) return tally.failure;
    if (report.is_idle && !done()) return Error{Errc::capacity, "the rows do not fit together"};
  }
  return {};
}

double seconds_since(const EngineRig& rig, Clock::Duration start) {
  return std::chrono::duration<double>(rig.clock.now() - start).count();
}

// What a long row's keys and values take beside exact ones, and from which depth on.
Status count_kv(EngineRig& rig,
                const KvList& list,
                const kv::KvScheme& scheme,
                const kv::KvStore& store,
                const OpenOptions& o) {
  KVASIR_TRY(const auto exact,
             kv::KvPlan::make(list, {.type = scheme.type}, o.block_tokens, 0, o.step_tokens()));
  const auto exact_bytes = static_cast<double>(exact.bytes_per_token());
  if (exact_bytes > 0)
    rig.kv_encoded_share = static_cast<double>(store.bytes_per_token()) / exact_bytes;
  rig.kv_key = scheme.cache_key();
  rig.kv_transition = scheme.transition();
  return {};
}

}  // namespace

Result<std::unique_ptr<EngineRig>> open_rig(const Options& options) {
  const OpenOptions& o = options.open;
  auto rig = std::make_unique<EngineRig>();
  KVASIR_TRY(rig->device, make_device(o));
  if (options.by_op) {
    auto timed = std::make_unique<TimedDevice>(std::move(rig->device), options.n_rows);
    rig->timed = timed.get();
    rig->device = std::move(timed);
  }
  KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
  KVASIR_TRY(const model::DecoderConfig config, model::describe_model(files, 0));
  if (!config.has_head) return unsupported(std::string(kNoText));
  rig->has_random_weights = files.has_random_weights();
  const std::uint32_t context = options.n_prefill + options.n_decode + 1;
  KVASIR_TRY(rig->model, model::Model::load(files, *rig->device,
                                            {.max_context = context,
                                             .max_step_tokens = o.step_tokens(),
                                             .max_wanted = options.n_rows,
                                             .progress = o.progress,
                                             .exact_f32 = false}));
  const KvList& list = rig->model->kv_list();
  KVASIR_TRY(const kv::KvScheme scheme, open_scheme(o, /*exact_f32=*/false, list));
  rig->kv_type = scheme.type;
  const std::size_t budget = budget_of_rows(list, scheme, options.n_rows + 2,
                                            context + o.step_tokens() + 4 * o.block_tokens);
  KVASIR_TRY(auto store, kv::KvStore::make(*rig->device, list,
                                           {.scheme = scheme,
                                            .block_tokens = o.block_tokens,
                                            .budget_bytes = budget,
                                            .split_tokens = context,
                                            .split_chunk = o.step_tokens()}));
  KVASIR_TRY_DO(count_kv(*rig, list, scheme, *store, o));
  engine::EngineOptions settings;
  settings.max_rows = options.n_rows;
  settings.max_step_tokens = o.step_tokens();
  // Timed apart, prompts need not leave room for rows that decode.
  settings.prefill_share = options.n_requests > 0 ? o.prompt_tokens_beside() : o.step_tokens();
  settings.queue_limit = std::max(options.n_rows, options.n_requests);
  KVASIR_TRY(rig->engine,
             engine::Engine::make({*rig->model, rig->clock, std::move(store), nullptr}, settings));
  return rig;
}

Result<Timing> time_rows(EngineRig& rig,
                         std::uint32_t n_rows,
                         std::uint32_t n_prefill,
                         std::uint32_t n_decode) {
  Tally tally{.is_resting = true, .failure = {}};
  Timing out;
  KVASIR_TRY_DO(submit(rig, n_rows, n_prefill, n_decode + 1, tally));
  Clock::Duration start = rig.clock.now();
  KVASIR_TRY_DO(step_until(rig, tally, [&] { return tally.n_first == n_rows; }));
  out.prefill_s = seconds_since(rig, start);
  tally.is_resting = false;
  start = rig.clock.now();
  const double busy = rig.device->busy_seconds();
  KVASIR_TRY_DO(step_until(rig, tally, [&] { return tally.n_over == n_rows; }));
  out.decode_s = seconds_since(rig, start);
  out.decode_busy_s = rig.device->busy_seconds() - busy;
  return out;
}

Result<Served> serve(EngineRig& rig,
                     std::uint32_t n_requests,
                     std::uint32_t n_prefill,
                     std::uint32_t n_decode) {
  Tally tally;
  const Clock::Duration start = rig.clock.now();
  const double busy = rig.device->busy_seconds();
  KVASIR_TRY_DO(submit(rig, n_requests, n_prefill, n_decode, tally));
  KVASIR_TRY_DO(step_until(rig, tally, [&] { return tally.n_over == n_requests; }));
  return Served{seconds_since(rig, start), rig.device->busy_seconds() - busy, tally.n_tokens};
}

}  // namespace kvasir::bench
