#include "kvasir/fit_model.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/limits.h"
#include "backend/cuda/cuda_device.h"
#include "codec/weight_type.h"
#include "engine/engine.h"
#include "fit/machine.h"
#include "fit/memory.h"
#include "kv/kv_plan.h"
#include "kvasir/fit/process_memory.h"
#include "kvasir/kv/open_scheme.h"
#include "kvasir/text/text_model.h"
#include "model/families.h"
#include "model/model.h"

namespace kvasir {
namespace {

// What threads, connections and requests take beside the process as it started. Measured
// (docs/fit.md).
constexpr std::uint64_t kServiceBytes = 1'500'000;
constexpr std::uint32_t kSizingPositions = 64;
// A budget of pools of different blocks is divided as rows of this many tokens would use it.
constexpr std::uint32_t kSplitTokens = 8192;

std::uint64_t ref_bytes(const codec::WeightMatrix& weight, bool keeps_codes) {
  const codec::WeightTypeInfo& info = codec::info(weight.type);
  const std::uint64_t n = std::uint64_t{weight.n_out} * weight.n_in;
  return keeps_codes && info.quantized ? 2 * n + 8 * (n / info.group) : 4 * n;
}

struct SizedMatrix final : ops::PackedMatrix {
  SizedMatrix(const codec::WeightMatrix& weight, std::size_t bytes)
      : PackedMatrix(weight.n_out, weight.n_in), bytes_(bytes) {}
  std::size_t size_bytes() const noexcept override { return bytes_; }

 private:
  std::size_t bytes_;
};

// A device whose packed weights have a size and nothing else: a model loaded onto it knows what it
// would take. Its ops are never run.
class SizingDevice final : public ops::Device {
 public:
  SizingDevice(ops::Device& inner, std::size_t n_gpus) : inner_(&inner), n_gpus_(n_gpus) {}

  std::string_view name() const noexcept override { return inner_->name(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  std::string label() const override { return inner_->label(); }
  const ops::OpTable& ops() const noexcept override { return inner_->ops(); }
  int n_threads() const noexcept override { return inner_->n_threads(); }
  bool is_exact() const noexcept override { return inner_->is_exact(); }
  bool shares_host_memory() const noexcept override { return inner_->shares_host_memory(); }
  Status synchronize() noexcept override { return inner_->synchronize(); }
  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind kind) override {
    return inner_->allocate(size_bytes, kind);
  }
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override {
    std::size_t bytes = 0;
    if (name() == "cpu") {
      KVASIR_TRY(bytes, backend::cpu::packed_size_bytes(weight, options));
    } else if (name() == "cuda") {
      KVASIR_TRY(bytes, backend::cuda::packed_size_bytes(weight, options));
      if (!options.may_split || options.exact_f32) bytes *= n_gpus_;
    } else {
      bytes = ref_bytes(weight, /*keeps_codes=*/!is_exact());
    }
    return std::unique_ptr<ops::PackedMatrix>(std::make_unique<SizedMatrix>(weight, bytes));
  }
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override {
    inner_->copy(to, from, size_bytes);
  }

 private:
  ops::Device* inner_;
  std::size_t n_gpus_;  // that have what is not split once each
};

bool is_ref(const OpenOptions& options) {
  return options.backend == Backend::ref || options.backend == Backend::ref_mirror;
}

bool is_cuda(const OpenOptions& options) {
  return chosen_backend(options.backend) == Backend::cuda;
}

// What a product keeps beside its operands: the input as the kernels want it, and sums of its
// groups, at least 16 wide.
std::uint64_t product_bytes_per_token(const model::DecoderConfig& config) {
  std::uint64_t widest = config.hidden;
  for (const model::LayerSpec& layer : config.layers) {
    widest = std::max<std::uint64_t>(widest, layer.attention.q_width());
    if (layer.latent)
      widest = std::max<std::uint64_t>({widest, layer.latent->q_rank, layer.latent->v_width()});
    if (layer.delta) widest = std::max<std::uint64_t>(widest, layer.delta->values_width());
    if (layer.has_mlp()) widest = std::max<std::uint64_t>(widest, layer.mlp.intermediate);
    if (layer.moe)
      widest = std::max<std::uint64_t>(
          {widest, layer.moe->intermediate, layer.moe->shared_intermediate});
  }
  return 4 * (widest + widest / 16);
}

std::uint32_t wanted_rows(const OpenOptions& options) {
  return options.max_rows + engine::kPromptLogitRows;
}

// Rows of the head, which do not depend on the step's length (FIT-8).
std::uint64_t head_bytes(const model::DecoderConfig& config, std::uint32_t n_rows) {
  if (!config.has_head) return 0;
  return std::uint64_t{n_rows} * (std::uint64_t{config.hidden} + config.vocab) * 4;
}

std::uint64_t step_token_bytes(const model::DecoderConfig& config, const OpenOptions& options) {
  const std::uint32_t chunk = options.step_tokens();
  const std::uint32_t n_wanted = std::min(wanted_rows(options), chunk);
  const std::uint64_t all = model::scratch_bytes(config, chunk, n_wanted);
  const std::uint64_t of_steps = all - std::min(all, head_bytes(config, n_wanted));
  const std::uint64_t beside = is_ref(options) ? 0 : product_bytes_per_token(config);
  return (of_steps + chunk - 1) / chunk + beside;
}

std::uint64_t fixed_bytes(const model::Model& model,
                          const OpenOptions& options,
                          std::uint64_t text_bytes,
                          std::uint64_t max_positions) {
  const model::DecoderConfig& config = model.config();
  const std::uint64_t sampler = std::uint64_t{options.max_rows} * config.vocab * 4;
  const std::uint64_t n = std::max(model.max_positions(), 1u);
  const std::uint64_t rope = (model.rope_bytes() + n - 1) / n * max_positions;
  if (is_cuda(options))  // of the GPU's memory
    return options.gpus.size() *
           (head_bytes(config, wanted_rows(options)) + rope + backend::cuda::kFixedBytes);
  return head_bytes(config, wanted_rows(options)) + sampler + rope + text_bytes + bytes_at_start() +
         kServiceBytes;
}

// Of a query and one key it attends; with a sparse index as if it attended every one.
std::uint64_t flops_per_key(const model::LayerSpec& layer) {
  if (!layer.latent) return 4 * std::uint64_t{layer.attention.q_width()};
  const model::LatentAttentionSpec& a = *layer.latent;
  const std::uint64_t index =
      a.has_own_index() ? std::uint64_t{a.index->n_heads} * a.index->dim : 0;
  return 2 * (std::uint64_t{a.n_heads} * (a.row_dim() + a.kv_rank) + index);
}

void fill_speed_facts(const model::Model& model, fit::Facts& facts) {
  const model::StepCost one = model.cost(1, 0), two = model.cost(2, 0);
  facts.weight_read_bytes = one.weight_bytes;
  facts.more_read_bytes = two.weight_bytes - std::min(two.weight_bytes, one.weight_bytes);
  facts.all_read_bytes = model.cost(facts.chunk, 0).weight_bytes;
  facts.linear_flops = two.linear_flops - one.linear_flops;  // the head's drop out
  const auto entries = model::kv_entries_of(model.config());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const model::LayerSpec& layer = model.config().layers[i];
    facts.reads.push_back({.state = entries[i], .flops_per_key = flops_per_key(layer)});
    facts.is_moe |= layer.moe.has_value();
  }
}

Status check_options(const OpenOptions& options) {
  if (options.step_tokens() > 1u << 20) return invalid("--max-step-tokens must be 1 to 1048576");
  if (options.max_rows == 0) return invalid("--batch must be at least 1");
  return kv::check_block_tokens(options.block_tokens);
}

Result<kv::KvPlan> plan_of(const KvList& list,
                           const kv::KvScheme& scheme,
                           const OpenOptions& options) {
  return kv::KvPlan::make(list, scheme, options.block_tokens, kSplitTokens, options.step_tokens());
}

// What the facts say of the KV state, from the arithmetic of the store that would hold it.
Status set_state(const KvList& list,
                 const kv::KvScheme& scheme,
                 const OpenOptions& options,
                 fit::Facts& facts) {
  KVASIR_TRY(facts.state, fit::state_of(list, scheme));
  facts.transition = scheme.transition();
  KVASIR_TRY(const kv::KvPlan plan, plan_of(list, scheme, options));
  facts.budget_for = [plan](std::uint64_t n) { return plan.budget_for(n); };
  return {};
}

// What `--kv-quant` would give instead of the scheme in use; else as that one is.
Result<fit::Facts> facts_under(const char* quant,
                               const fit::Facts& facts,
                               const KvList& list,
                               const OpenOptions& options,
                               const kv::KvScheme& in_use) {
  KVASIR_TRY(kv::KvScheme scheme, kv::resolve_kv_scheme({.quant = quant,
                                                         .start = options.kv_start,
                                                         .group = options.kv_group,
                                                         .type = in_use.type}));
  scheme.first_span = in_use.first_span;
  fit::Facts out = facts;
  KVASIR_TRY_DO(set_state(list, scheme, options, out));
  return out;
}

std::vector<fit::SchemeContext> contexts_of_schemes(const fit::Facts& facts,
                                                    const KvList& list,
                                                    const OpenOptions& options,
                                                    const kv::KvScheme& in_use,
                                                    std::uint64_t usable) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kSchemes{
      {{"exact", "off"}, {"8", "8"}, {"4", "4"}, {"turbo", "turbo"}}};
  std::vector<fit::SchemeContext> out;
  for (const auto& [name, quant] : kSchemes) {
    fit::SchemeContext entry{.scheme = name, .max_context = 0, .not_applicable = {}};
    if (const auto other = facts_under(quant, facts, list, options, in_use))
      entry.max_context = fit::max_context(*other, usable);
    else
      entry.not_applicable = other.error().what;
    out.push_back(std::move(entry));
  }
  return out;
}

Error too_long(std::uint64_t asked, std::uint64_t limit) {  // FIT-12
  return invalid("context length " + std::to_string(asked) + " exceeds the model's " +
                 std::to_string(limit));
}

std::string name_of_model(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::uint64_t usable_bytes(const OpenOptions& options) {
  if (options.memory_budget_bytes > 0) return options.memory_budget_bytes;
  if (!is_cuda(options)) return fit::usable_host_bytes(fit::read_machine_memory());
  std::uint64_t usable = 0;
  for (const int gpu : options.gpus) {
    const auto memory = backend::cuda::cuda_memory(gpu);
    if (!memory) return 0;
    // FIT-1, and never what others hold.
    usable += std::min(memory->total_bytes / 10 * 9, memory->free_bytes);
  }
  return usable;
}

Result<fit::Facts> facts_of(const model::Model& model,
                            const formats::ModelFiles& files,
                            const OpenOptions& options,
                            const kv::KvScheme& scheme,
                            std::uint64_t text_bytes,
                            std::uint64_t max_positions) {
  fit::Facts facts;
  facts.weight_bytes = model.weight_bytes();
  facts.fixed_bytes = fixed_bytes(model, options, text_bytes, max_positions);
  facts.step_token_bytes = step_token_bytes(model.config(), options);
  if (is_cuda(options)) facts.step_token_bytes *= options.gpus.size();  // each GPU has its own
  facts.chunk = options.step_tokens();
  if (model.takes_whole_rows())  // its longest input is one step (SCH-12)
    facts.chunk = std::max(facts.chunk, static_cast<std::uint32_t>(max_positions));
  facts.block_tokens = options.block_tokens;
  facts.max_positions = max_positions;
  facts.kv_budget_bytes = options.kv_budget_bytes;
  KVASIR_TRY_DO(set_state(model.kv_list(), scheme, options, facts));
  facts.scores = fit::score_facts_of(files.config());
  facts.attention_memory = is_ref(options) ? fit::ref_attention() : fit::tiled_attention();
  fill_speed_facts(model, facts);
  return facts;
}

Result<SizedModel> size_model(const formats::ModelFiles& files,
                              ops::Device& device,
                              const OpenOptions& options,
                              std::uint64_t text_bytes) {
  KVASIR_TRY_DO(check_options(options));
  KVASIR_TRY(const model::DecoderConfig config, model::describe_model(files, 0));
  const std::uint64_t limit = config.max_positions;
  if (options.context_length > limit) return too_long(options.context_length, limit);
  SizingDevice sizing(device, options.gpus.size());
  const auto n_positions =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, kSizingPositions));
  KVASIR_TRY(const auto model, model::Model::load(files, sizing,
                                                  {.max_context = n_positions,
                                                   .max_step_tokens = 1,
                                                   .max_wanted = 1,
                                                   .progress = {},
                                                   .exact_f32 = false}));
  SizedModel out;
  out.name = name_of_model(options.model);
  out.list = model->kv_list();
  out.model_context = limit;
  KVASIR_TRY(out.scheme, open_scheme(options, model->exact_f32(), out.list));
  const std::uint64_t served = options.context_length > 0 ? options.context_length : limit;
  KVASIR_TRY(out.facts, facts_of(*model, files, options, out.scheme, text_bytes, served));
  out.usable_bytes = usable_bytes(options);
  KVASIR_TRY(const kv::KvPlan plan, plan_of(out.list, out.scheme, options));
  out.facts.fixed_bytes += plan.books_bytes(fit::kv_budget(out.facts, out.usable_bytes));
  return out;
}

fit::MachineSpeed measure_machine(int n_threads) {
  const backend::cpu::Limits limits = backend::cpu::measure_limits(n_threads);
  return {.bytes_per_second = limits.read_gb_s * 1e9,
          .flops_per_second = limits.fma_gflop_s * 1e9,
          .efficiency = {}};
}

kv::KvStoreOptions store_options_of(const SizedModel& sized, const OpenOptions& options) {
  return {.scheme = sized.scheme,
          .block_tokens = options.block_tokens,
          .budget_bytes = fit::kv_budget(sized.facts, sized.usable_bytes),
          .split_tokens = kSplitTokens,
          .split_chunk = options.step_tokens()};
}

fit::FitReport report_of(const SizedModel& sized,
                         const OpenOptions& options,
                         const fit::MachineSpeed& machine,
                         std::uint64_t context) {
  fit::FitReport out;
  out.model = sized.name;
  out.scheme = sized.scheme.cache_key();
  out.model_context = sized.model_context;
  out.batch = options.max_rows;
  out.report = fit::make_report(sized.facts, machine, sized.usable_bytes, context);
  out.schemes =
      contexts_of_schemes(sized.facts, sized.list, options, sized.scheme, sized.usable_bytes);
  out.speeds = fit::speeds_that_fit(sized.facts, machine, out.report.max_context, options.max_rows);
  return out;
}

Result<fit::FitReport> fit_model(const FitOptions& options) {
  OpenOptions open = options.open;
  const auto context = open.context_length;
  open.context_length = 0;  // what is asked about, not what would be served
  KVASIR_TRY(const auto files, formats::ModelFiles::open(open.model));
  KVASIR_TRY(const auto device, make_device(open));
  bytes_at_start();  // read before there is anything to count twice
  const std::uint64_t before = heap_bytes();
  const auto text = TextModel::load(
      files, {.chat_template = open.chat_template, .tool_parser = open.tool_parser});
  if (!text && text.error().code != Errc::not_found) return text.error();  // no tokenizer: no bytes
  KVASIR_TRY(const SizedModel sized, size_model(files, *device, open, heap_bytes() - before));
  if (context > sized.model_context) return too_long(context, sized.model_context);
  KVASIR_TRY_DO(fit::check_load(sized.name, sized.facts, sized.usable_bytes));
  const fit::MachineSpeed machine = measure_machine(device->n_threads());
  fit::FitReport out =
      report_of(sized, open, machine,
                context > 0 ? context : std::min(fit::kUsualContext, sized.model_context));
  out.n_threads = device->n_threads();
  return out;
}

}  // namespace kvasir
