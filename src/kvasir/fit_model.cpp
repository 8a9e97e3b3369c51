#include "kvasir/fit_model.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/limits.h"
#include "codec/weight_type.h"
#include "fit/machine.h"
#include "fit/memory.h"
#include "kvasir/kv/open_scheme.h"
#include "model/families.h"
#include "model/model.h"

namespace kvasir {
namespace {

// Vocabulary, merges and their indexes, of one token; the process itself with its HTTP buffers.
// Estimates of what no owner reports.
constexpr std::uint64_t kTokenizerTokenBytes = 256;
constexpr std::uint64_t kProcessBytes = 32'000'000;
constexpr std::uint32_t kSizingPositions = 64;

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
  explicit SizingDevice(std::unique_ptr<ops::Device> inner) : inner_(std::move(inner)) {}

  std::string_view name() const noexcept override { return inner_->name(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  const ops::OpTable& ops() const noexcept override { return inner_->ops(); }
  int n_threads() const noexcept override { return inner_->n_threads(); }
  bool is_exact() const noexcept override { return inner_->is_exact(); }
  Result<Buffer> allocate(std::size_t size_bytes) override { return inner_->allocate(size_bytes); }
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override {
    std::size_t bytes = 0;
    if (name() == "cpu") {
      KVASIR_TRY(bytes, backend::cpu::packed_size_bytes(weight, options));
    } else {
      bytes = ref_bytes(weight, /*keeps_codes=*/!is_exact());
    }
    return std::unique_ptr<ops::PackedMatrix>(std::make_unique<SizedMatrix>(weight, bytes));
  }
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override {
    inner_->copy(to, from, size_bytes);
  }

 private:
  std::unique_ptr<ops::Device> inner_;
};

bool is_ref(const OpenOptions& options) {
  return options.backend == Backend::ref || options.backend == Backend::ref_mirror;
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

// Rows of the head, which do not depend on the step's length (FIT-8).
std::uint64_t head_bytes(const model::DecoderConfig& config, std::uint32_t n_rows) {
  if (!config.has_head) return 0;
  return std::uint64_t{n_rows} * (std::uint64_t{config.hidden} + config.vocab) * 4;
}

std::uint64_t step_token_bytes(const model::DecoderConfig& config, const OpenOptions& options) {
  const std::uint32_t chunk = options.max_step_tokens;
  const std::uint32_t n_wanted = std::min(options.max_rows, chunk);
  const std::uint64_t all = model::scratch_bytes(config, chunk, n_wanted);
  const std::uint64_t of_steps = all - std::min(all, head_bytes(config, n_wanted));
  const std::uint64_t beside = is_ref(options) ? 0 : product_bytes_per_token(config);
  return (of_steps + chunk - 1) / chunk + beside;
}

std::uint64_t fixed_bytes(const model::Model& model,
                          const OpenOptions& options,
                          std::uint64_t max_positions) {
  const model::DecoderConfig& config = model.config();
  const std::uint64_t sampler = std::uint64_t{options.max_rows} * config.vocab * 4;
  const std::uint64_t n = std::max(model.max_positions(), 1u);
  const std::uint64_t rope = (model.rope_bytes() + n - 1) / n * max_positions;
  return head_bytes(config, options.max_rows) + sampler + rope +
         config.vocab * kTokenizerTokenBytes + kProcessBytes;
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
  if (options.max_step_tokens == 0 || options.max_step_tokens > 1u << 20)
    return invalid("--max-step-tokens must be 1 to 1048576");
  if (options.max_rows == 0) return invalid("--batch must be at least 1");
  return kv::check_block_tokens(options.block_tokens);
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
  out.transition = scheme.transition();
  KVASIR_TRY(out.state, fit::state_of(list, scheme));
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

// The model's own limit; with FIT-12's refusal of a longer context.
Result<std::uint64_t> model_limit(const formats::ModelFiles& files, std::uint64_t asked) {
  KVASIR_TRY(const model::DecoderConfig config, model::describe_model(files, 0));
  if (asked > config.max_positions)
    return invalid("context length " + std::to_string(asked) + " exceeds the model's " +
                   std::to_string(config.max_positions));
  return std::uint64_t{config.max_positions};
}

std::string name_of_model(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::uint64_t usable_bytes(std::uint64_t memory_budget_bytes) {
  return memory_budget_bytes > 0 ? memory_budget_bytes
                                 : fit::usable_host_bytes(fit::read_machine_memory());
}

Result<fit::Facts> facts_of(const model::Model& model,
                            const formats::ModelFiles& files,
                            const OpenOptions& options,
                            const kv::KvScheme& scheme,
                            std::uint64_t max_positions) {
  fit::Facts facts;
  facts.weight_bytes = model.weight_bytes();
  facts.fixed_bytes = fixed_bytes(model, options, max_positions);
  facts.step_token_bytes = step_token_bytes(model.config(), options);
  facts.chunk = options.max_step_tokens;
  if (model.takes_whole_rows())  // its longest input is one step (SCH-12)
    facts.chunk = std::max(facts.chunk, static_cast<std::uint32_t>(max_positions));
  facts.block_tokens = options.block_tokens;
  facts.max_positions = max_positions;
  KVASIR_TRY(facts.state, fit::state_of(model.kv_list(), scheme));
  facts.transition = scheme.transition();
  facts.scores = fit::score_facts_of(files.config());
  facts.attention_memory = is_ref(options) ? fit::ref_attention() : fit::tiled_attention();
  fill_speed_facts(model, facts);
  return facts;
}

fit::MachineSpeed measure_machine(int n_threads) {
  const backend::cpu::Limits limits = backend::cpu::measure_limits(n_threads);
  return {.bytes_per_second = limits.read_gb_s * 1e9,
          .flops_per_second = limits.fma_gflop_s * 1e9,
          .efficiency = {}};
}

Result<fit::FitReport> fit_model(const FitOptions& options) {
  const OpenOptions& open = options.open;
  KVASIR_TRY_DO(check_options(open));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(open.model));
  KVASIR_TRY(const std::uint64_t limit, model_limit(files, open.context_length));
  KVASIR_TRY(auto inner, make_device(open.backend, open.n_threads, open.isa));
  SizingDevice device(std::move(inner));
  const auto n_positions =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, kSizingPositions));
  KVASIR_TRY(const auto model, model::Model::load(files, device,
                                                  {.max_context = n_positions,
                                                   .max_step_tokens = 1,
                                                   .max_wanted = 1,
                                                   .progress = {},
                                                   .exact_f32 = false}));
  KVASIR_TRY(const kv::KvScheme scheme, open_scheme(open, model->exact_f32(), model->kv_list()));
  KVASIR_TRY(const fit::Facts facts, facts_of(*model, files, open, scheme, limit));
  const std::uint64_t usable = usable_bytes(options.memory_budget_bytes);
  fit::FitReport out;
  out.model = name_of_model(open.model);
  KVASIR_TRY_DO(fit::check_load(out.model, facts, usable));
  const fit::MachineSpeed machine = measure_machine(device.n_threads());
  const std::uint64_t usual = std::min(fit::kUsualContext, limit);
  out.scheme = scheme.cache_key();
  out.model_context = limit;
  out.batch = open.max_rows;
  out.n_threads = device.n_threads();
  out.report = fit::make_report(facts, machine, usable,
                                open.context_length > 0 ? open.context_length : usual);
  out.schemes = contexts_of_schemes(facts, model->kv_list(), open, scheme, usable);
  out.speeds = fit::speeds_that_fit(facts, machine, out.report.max_context, open.max_rows);
  return out;
}

}  // namespace kvasir
