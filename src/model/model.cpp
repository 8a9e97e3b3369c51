#include "model/model.h"

#include <algorithm>
#include <string>

#include "base/half.h"
#include "base/log.h"
#include "model/detail/decoder.h"
#include "model/detail/decoder_weights.h"
#include "model/detail/rope.h"
#include "model/detail/scratch.h"
#include "model/families.h"

namespace kvasir::model {

struct Model::Impl {
  ops::Device& device;
  DecoderConfig config;
  KvList kv_list;
  std::vector<std::uint32_t> kv_entries;
  StepLimits limits;
  bool exact_f32 = false;
  DecoderWeights weights;
  std::vector<RopeTable> ropes;
  Scratch scratch;
  std::uint64_t weight_bytes = 0;
};

namespace {

constexpr std::uint32_t kMaxStepTokens = 1u << 20;

Result<StepLimits> limits_of(const LoadOptions& options, const DecoderConfig& config) {
  // An encoder's input is fed whole, even past B (SCH-12).
  const std::uint32_t n_tokens = config.encoder
                                     ? std::max(options.max_step_tokens, config.max_positions)
                                     : options.max_step_tokens;
  // Without a head all rows may be wanted: they cost no more than the step's own.
  const bool is_bounded = config.has_head && options.max_wanted > 0;
  const std::uint32_t wanted = is_bounded ? options.max_wanted : n_tokens;
  if (config.encoder && n_tokens > kMaxStepTokens)
    return invalid("an encoder takes at most " + std::to_string(kMaxStepTokens) + " tokens");
  if (options.max_step_tokens == 0 || n_tokens > kMaxStepTokens) {
    return invalid("max_step_tokens must be 1.." + std::to_string(kMaxStepTokens));
  }
  return StepLimits{.max_step_tokens = n_tokens, .max_wanted = std::min(wanted, n_tokens)};
}

void warn_if_untested(const formats::ModelFiles& files) {
  const auto family = find_family(files.config());
  if (family && !(*family)->has_golden)
    log::warning("untested family: " + std::string((*family)->model_type));
}

// As the weights' type would hold them, had it been computed in.
void round_embedding_scales(DecoderConfig& config) {
  const auto round = [&](float& scale) {
    if (config.embedding_scale_type == DType::f16) scale = to_f32(to_f16(scale));
    if (config.embedding_scale_type == DType::bf16) scale = round_to_bf16(scale);
  };
  round(config.embedding_scale);
  round(config.per_layer_input_scale);
}

std::string of_at_most(std::size_t n, std::string_view what, std::size_t limit) {
  return std::to_string(n) + " " + std::string(what) + " in a step, at most " +
         std::to_string(limit);
}

Status check_kv(const KvList& list, std::span<const KvLayerView> views) {
  if (views.size() != list.size())
    return invalid("step has KV of " + std::to_string(views.size()) + " layers, the model " +
                   std::to_string(list.size()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const KvLayerSpec given{.n_kv_heads = views[i].n_kv_heads,
                            .head_dim = views[i].head_dim,
                            .window = views[i].window};
    if (given != list[i])
      return invalid("KV of layer " + std::to_string(i) + " has another shape than the model's");
  }
  return {};
}

// An encoder tells rows apart by their positions.
Status check_whole_rows(std::span<const std::uint32_t> positions) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const bool goes_on = i > 0 && positions[i] == positions[i - 1] + 1;
    if (positions[i] != 0 && !goes_on)
      return invalid("an encoder's rows start at position 0 and are whole");
  }
  return {};
}

Status check_batch(const StepBatch& batch,
                   const DecoderConfig& config,
                   const KvList& list,
                   const StepLimits& limits) {
  const std::size_t n = batch.tokens.size();
  if (n > limits.max_step_tokens)
    return Error{Errc::capacity, of_at_most(n, "tokens", limits.max_step_tokens)};
  if (batch.wanted.size() > limits.max_wanted)
    return Error{Errc::capacity, of_at_most(batch.wanted.size(), "wanted rows", limits.max_wanted)};
  if (batch.positions.size() != n)
    return invalid("step has " + std::to_string(n) + " tokens, " +
                   std::to_string(batch.positions.size()) + " positions");
  for (const TokenId token : batch.tokens) {
    if (token >= config.vocab)
      return invalid("token " + std::to_string(token) + " is not in the vocabulary of " +
                     std::to_string(config.vocab));
  }
  for (const std::uint32_t position : batch.positions) {
    if (position >= config.max_positions)
      return invalid("position " + std::to_string(position) + " is beyond the context of " +
                     std::to_string(config.max_positions));
  }
  for (const std::uint32_t row : batch.wanted) {
    if (row >= n)
      return invalid("wanted row " + std::to_string(row) + " of " + std::to_string(n) + " tokens");
  }
  if (config.encoder) KVASIR_TRY_DO(check_whole_rows(batch.positions));
  return check_kv(list, batch.kv);
}

// Multiply-adds of one token in a layer's matrices.
std::uint64_t products_per_token(const LayerSpec& layer, std::uint64_t hidden) {
  const AttentionSpec& a = layer.attention;
  std::uint64_t out = hidden * (a.projected_width() + a.q_width());
  if (layer.has_mlp()) out += (layer.mlp.is_gated ? 3 : 2) * hidden * layer.mlp.intermediate;
  if (!layer.moe) return out;
  const MoeSpec& moe = *layer.moe;
  const std::uint64_t width = std::uint64_t{moe.top_k} * moe.intermediate + moe.shared_intermediate;
  return out + hidden * moe.n_experts + 3 * hidden * width;
}

// Σ over the n tokens from position `context` on of the keys each one sees.
std::uint64_t visible_keys(std::uint64_t n, std::uint64_t context, std::uint64_t window) {
  if (!window) return n * context + n * (n + 1) / 2;
  const std::uint64_t growing =
      context >= window ? 0 : std::min(n, window - context);  // tokens before the window is full
  return growing * context + growing * (growing + 1) / 2 + (n - growing) * window;
}

// The same over a whole input, of a window at most: the ends of the input see fewer.
std::uint64_t keys_both_ways(std::uint64_t n, std::uint64_t window) {
  return n * (window ? std::min(n, 2 * window - 1) : n);
}

// Experts are of one size: what those that no token of the step can choose hold.
std::uint64_t idle_expert_bytes(const MoeWeights& w, const MoeSpec& moe, std::uint64_t n_tokens) {
  std::uint64_t bytes = 0;
  for (const auto& matrix : w.matrices) bytes += matrix->size_bytes();
  for (const Vector& biases : w.expert_biases) bytes += biases.size() * sizeof(float);
  const std::uint64_t n_chosen = std::min<std::uint64_t>(moe.n_experts, n_tokens * moe.top_k);
  return bytes / moe.n_experts * (moe.n_experts - n_chosen);
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(const formats::ModelFiles& files,
                                           ops::Device& device,
                                           LoadOptions options) {
  KVASIR_TRY(DecoderConfig config, describe_model(files, options.max_context));
  KVASIR_TRY(const StepLimits limits, limits_of(options, config));
  warn_if_untested(files);
  auto m = std::make_unique<Impl>(Impl{.device = device,
                                       .config = std::move(config),
                                       .kv_list = {},
                                       .kv_entries = {},
                                       .limits = limits,
                                       .exact_f32 = options.exact_f32 || stores_only_f32(files),
                                       .weights = {},
                                       .ropes = {},
                                       .scratch = {}});
  if (!m->exact_f32 && !device.is_exact()) round_embedding_scales(m->config);
  m->kv_list = kv_list_of(m->config);
  m->kv_entries = kv_entries_of(m->config);
  KVASIR_TRY(m->weights, load_weights(files, m->config, device, m->exact_f32, options.progress));
  m->weight_bytes = size_bytes(m->weights);
  for (const RopeSpec& rope : m->config.ropes) {
    KVASIR_TRY(RopeTable table, build_rope_table(device, rope, m->config.max_positions));
    m->ropes.push_back(std::move(table));
  }
  KVASIR_TRY(m->scratch, make_scratch(device, m->config, limits));
  m->scratch.kv_type = m->exact_f32 || device.is_exact() ? DType::f32 : DType::bf16;
  return std::unique_ptr<Model>(new Model(std::move(m)));
}

Result<LogitsView> Model::forward(const StepBatch& batch) {
  KVASIR_TRY_DO(check_batch(batch, impl_->config, impl_->kv_list, impl_->limits));
  if (batch.tokens.empty())
    return LogitsView{.data = nullptr, .n_rows = 0, .vocab = output_width()};
  return Decoder(impl_->device, impl_->config, impl_->weights, impl_->ropes, impl_->kv_entries,
                 impl_->scratch)
      .forward(batch);
}

const KvList& Model::kv_list() const noexcept { return impl_->kv_list; }
std::uint32_t Model::vocab_size() const noexcept { return impl_->config.vocab; }
std::uint32_t Model::max_positions() const noexcept { return impl_->config.max_positions; }
std::uint32_t Model::max_step_tokens() const noexcept { return impl_->limits.max_step_tokens; }
OutputKind Model::output() const noexcept {
  return impl_->config.has_head ? OutputKind::logits : OutputKind::hidden;
}
std::uint32_t Model::output_width() const noexcept {
  return impl_->config.has_head ? impl_->config.vocab : impl_->config.hidden;
}
bool Model::takes_whole_rows() const noexcept { return impl_->config.encoder.has_value(); }
std::uint32_t Model::max_wanted() const noexcept { return impl_->limits.max_wanted; }
const DecoderConfig& Model::config() const noexcept { return impl_->config; }
std::string_view Model::rope_choice() const noexcept { return impl_->config.rope_choice; }
bool Model::exact_f32() const noexcept { return impl_->exact_f32; }
std::uint64_t Model::weight_bytes() const noexcept { return impl_->weight_bytes; }
std::uint64_t Model::scratch_bytes() const noexcept { return impl_->scratch.memory.size_bytes(); }

std::uint64_t Model::rope_bytes() const noexcept {
  std::uint64_t out = 0;
  for (const RopeTable& rope : impl_->ropes) out += rope.memory.size_bytes();
  return out;
}

StepCost Model::cost(std::uint32_t n_tokens, std::uint32_t context, DType kv_type) const noexcept {
  const DecoderConfig& config = impl_->config;
  const DecoderWeights& weights = impl_->weights;
  StepCost cost;
  if (config.has_head) cost.linear_flops = 2 * std::uint64_t{config.hidden} * config.vocab;
  cost.weight_bytes = impl_->weight_bytes;
  // Of an embedding table that is not the head as well, only the tokens' rows are read.
  const auto leave_unread = [&](const ops::PackedMatrix& table) {
    const std::uint64_t bytes = table.size_bytes();
    cost.weight_bytes -= bytes - std::min<std::uint64_t>(bytes, bytes / config.vocab * n_tokens);
  };
  if (weights.own_head || !config.has_head) leave_unread(*weights.embedding);
  if (weights.per_layer_inputs) {
    leave_unread(*weights.per_layer_inputs->table);
    cost.linear_flops += 2 * 3 * std::uint64_t{config.per_layer_inputs_width()} * config.hidden *
                         n_tokens;  // the projection, and gate and output of every layer
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec& layer = config.layers[i];
    const AttentionSpec& a = layer.attention;
    const std::uint64_t keys_stored =
        a.window ? std::min<std::uint64_t>(a.window, std::uint64_t{context} + n_tokens)
                 : std::uint64_t{context} + n_tokens;
    const std::uint64_t keys_written = a.donor ? 0 : n_tokens;
    cost.linear_flops += 2 * products_per_token(layer, config.hidden) * n_tokens;
    const std::uint64_t keys_seen = config.encoder ? keys_both_ways(n_tokens, a.window)
                                                   : visible_keys(n_tokens, context, a.window);
    cost.attention_flops += 4 * std::uint64_t{a.q_width()} * keys_seen;
    if (!config.encoder)
      cost.kv_bytes += 2 * (keys_stored + keys_written) * a.kv_width() * size_of(kv_type);
    if (layer.moe)
      cost.weight_bytes -= idle_expert_bytes(*weights.layers[i].moe, *layer.moe, n_tokens);
  }
  return cost;
}

std::uint64_t scratch_bytes(const DecoderConfig& config,
                            std::uint32_t max_step_tokens,
                            std::uint32_t max_wanted) {
  return scratch_size_bytes(
      config, {.max_step_tokens = max_step_tokens,
               .max_wanted = max_wanted && config.has_head ? max_wanted : max_step_tokens});
}

}  // namespace kvasir::model
