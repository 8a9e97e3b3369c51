#include "model/model.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "base/half.h"
#include "base/log.h"
#include "model/detail/decoder.h"
#include "model/detail/decoder_weights.h"
#include "model/detail/rope.h"
#include "model/detail/scratch.h"
#include "model/families.h"

namespace kvasir::model {

struct Model::Launched {  // and not collected
  LogitsView logits;
  std::size_t n_picked = 0;
  std::size_t slot = 0;  // of host_picked
};

struct Model::Impl {
  static constexpr std::size_t kMaxLaunched = 2;

  ops::Device& device;
  DecoderConfig config;
  KvList kv_list;
  std::vector<std::uint32_t> kv_entries;
  StepLimits limits;
  bool exact_f32 = false;
  DecoderWeights weights;
  std::vector<RopeTable> ropes;
  Scratch scratch;
  Buffer host_output;  // of devices with memory of their own: [max_wanted, output_width()]
  Buffer host_picked;  // [kMaxLaunched, max_wanted]
  std::array<Launched, kMaxLaunched> launched = {};  // oldest first
  std::size_t n_launched = 0, n_launches = 0;
  std::size_t n_last_picked = 0;  // of the batch launched last: what picked_from() may name
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
  return StepLimits{.max_step_tokens = n_tokens,
                    .max_wanted = std::min(wanted, n_tokens),
                    .max_tentative = std::min(options.max_tentative_tokens, n_tokens)};
}

bool has_recurrent_layers(const DecoderConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerSpec& layer) { return layer.is_recurrent(); });
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

// What a view of the kind of `wanted` is of.
KvLayerSpec spec_of(const KvLayerSpec& wanted, const KvViews& views, std::size_t i) {
  if (wanted.is_latent()) {
    const LatentLayerView& v = views.latent[i];
    return {.latent = {.rank = v.rank, .rope_dim = v.rope_dim, .index_dim = v.index_dim}};
  }
  if (wanted.is_recurrent()) {
    const RecurrentLayerView& v = views.recurrent[i];
    return {.recurrent = {.conv_kernel = v.conv_kernel,
                          .n_channels = v.n_channels,
                          .n_value_heads = v.n_value_heads,
                          .value_dim = v.value_dim,
                          .key_dim = v.key_dim}};
  }
  const KvLayerView& v = views.attention[i];
  return {.n_kv_heads = v.n_kv_heads, .head_dim = v.head_dim, .window = v.window};
}

Status check_kv(const KvList& list, const KvViews& views) {
  if (views.attention.size() != list.size() || views.latent.size() != list.size() ||
      views.recurrent.size() != list.size())
    return invalid("step has KV of " + std::to_string(views.size()) + " layers, the model " +
                   std::to_string(list.size()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (spec_of(list[i], views, i) != list[i])
      return invalid("KV of layer " + std::to_string(i) + " has another shape than the model's");
  }
  return {};
}

// All recurrent layers have the same rows.
std::size_t count_tentative(const KvList& list, const KvViews& views) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_recurrent()) continue;
    for (const RecurrentRowView& row : views.recurrent[i].rows)
      n += row.is_tentative ? row.n_new : 0;
    return n;
  }
  return n;
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
                   const StepLimits& limits,
                   std::size_t n_last_picked) {
  const std::size_t n = batch.tokens.size();
  if (n > limits.max_step_tokens)
    return Error{Errc::capacity, of_at_most(n, "tokens", limits.max_step_tokens)};
  if (batch.wanted.size() > limits.max_wanted)
    return Error{Errc::capacity, of_at_most(batch.wanted.size(), "wanted rows", limits.max_wanted)};
  if (batch.positions.size() != n)
    return invalid("step has " + std::to_string(n) + " tokens, " +
                   std::to_string(batch.positions.size()) + " positions");
  for (const TokenId token : batch.tokens) {
    if (is_picked(token) && row_of_picked(token) < n_last_picked) continue;
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
  if (!batch.picks.empty() && (batch.picks.size() != batch.wanted.size() || !config.has_head))
    return invalid("a step picks a token for each wanted row of scores, or none");
  if (config.encoder) {
    KVASIR_TRY_DO(check_whole_rows(batch.positions));
  }
  KVASIR_TRY_DO(check_kv(list, batch.kv));
  const std::size_t n_tentative = count_tentative(list, batch.kv);
  if (n_tentative > limits.max_tentative)
    return Error{Errc::capacity, of_at_most(n_tentative, "tentative tokens", limits.max_tentative)};
  return {};
}

// Multiply-adds of one token in the matrices of latent attention.
std::uint64_t latent_products(const LatentAttentionSpec& a, std::uint64_t hidden) {
  const std::uint64_t q_in = a.q_rank ? a.q_rank : hidden;
  std::uint64_t out = hidden * (a.q_rank + a.row_dim() + a.v_width()) + q_in * a.q_width() +
                      std::uint64_t{a.latent_width()} * (a.nope_dim + a.v_dim);
  if (a.has_own_index())
    out += q_in * a.index->n_heads * a.index->dim + hidden * (a.index->dim + a.index->n_heads);
  return out;
}

// Multiply-adds of one token in a layer's matrices.
std::uint64_t products_per_token(const LayerSpec& layer, std::uint64_t hidden) {
  const AttentionSpec& a = layer.attention;
  std::uint64_t out = layer.latent ? latent_products(*layer.latent, hidden)
                                   : hidden * (a.projected_width() + a.q_width());
  if (const auto& d = layer.delta) out += hidden * (d->inputs_width() + d->values_width());
  if (const auto& c = layer.short_conv) out += hidden * 4 * c->width;
  if (layer.has_mlp()) out += (layer.mlp.is_gated ? 3 : 2) * hidden * layer.mlp.intermediate;
  if (!layer.moe) return out;
  const MoeSpec& moe = *layer.moe;
  const std::uint64_t width = std::uint64_t{moe.top_k} * moe.intermediate + moe.shared_intermediate;
  return out + hidden * (moe.n_experts + (moe.shared_gate ? 1 : 0)) + 3 * hidden * width;
}

// Multiply-adds of one token in a layer's convolution and recurrence: S k, the outer product and S
// q.
std::uint64_t recurrence_per_token(const LayerSpec& layer) {
  if (const auto& c = layer.short_conv) return std::uint64_t{c->kernel} * c->width;
  const auto& d = layer.delta;
  if (!d) return 0;
  return std::uint64_t{d->conv_kernel} * d->conv_width() +
         3 * std::uint64_t{d->values_width()} * d->key_dim;
}

// Of one row; f32 but for the tails.
std::uint64_t state_bytes(const RecurrentSpec& spec, DType kv_type) {
  const RecurrentLayerView view{.conv_type = kv_type == DType::f32 ? DType::f32 : DType::bf16,
                                .conv_kernel = spec.conv_kernel,
                                .n_channels = spec.n_channels,
                                .n_value_heads = spec.n_value_heads,
                                .value_dim = spec.value_dim,
                                .key_dim = spec.key_dim,
                                .rows = {}};
  return view.conv_bytes() + view.delta_bytes();
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

// Attention and its state in a step; of latent layers, the index looks at every key, attention at
// those it chose.
void add_attention(const LayerSpec& layer,
                   bool both_ways,
                   std::uint64_t n,
                   std::uint64_t context,
                   DType kv_type,
                   StepCost& cost) {
  const std::uint64_t n_stored = context + n;
  if (both_ways) {
    const AttentionSpec& a = layer.attention;
    cost.attention_flops += 4 * std::uint64_t{a.q_width()} * keys_both_ways(n, a.window);
    return;
  }
  if (!layer.latent) {
    const AttentionSpec& a = layer.attention;
    const std::uint64_t n_read = a.window ? std::min<std::uint64_t>(a.window, n_stored) : n_stored;
    const std::uint64_t n_written = a.donor ? 0 : n;
    cost.attention_flops += 4 * std::uint64_t{a.q_width()} * visible_keys(n, context, a.window);
    cost.kv_bytes += 2 * (n_read + n_written) * a.kv_width() * size_of(kv_type);
    return;
  }
  const LatentAttentionSpec& a = *layer.latent;
  const std::uint64_t chosen = a.index ? a.index->top_k : 0;  // of each query; 0: all
  const std::uint64_t n_read = chosen ? std::min(n_stored, n * chosen) : n_stored;
  cost.attention_flops +=
      2 * std::uint64_t{a.n_heads} * (a.row_dim() + a.kv_rank) * visible_keys(n, context, chosen);
  cost.kv_bytes += (n_read + n) * a.row_dim() * size_of(kv_type);
  if (!a.has_own_index()) return;
  cost.attention_flops +=
      2 * std::uint64_t{a.index->n_heads} * a.index->dim * visible_keys(n, context, 0);
  cost.kv_bytes += (n_stored + n) * a.index->dim * size_of(kv_type);
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
  KVASIR_TRY(StepLimits limits, limits_of(options, config));
  if (!has_recurrent_layers(config)) limits.max_tentative = 0;
  warn_if_untested(files);
  auto m = std::make_unique<Impl>(Impl{.device = device,
                                       .config = std::move(config),
                                       .kv_list = {},
                                       .kv_entries = {},
                                       .limits = limits,
                                       .exact_f32 = options.exact_f32 || stores_only_f32(files),
                                       .weights = {},
                                       .ropes = {},
                                       .scratch = {},
                                       .host_output = {},
                                       .host_picked = {}});
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
  if (!device.shares_host_memory()) {
    const std::size_t width = m->config.has_head ? m->config.vocab : m->config.hidden;
    KVASIR_TRY(m->host_output,
               device.allocate(limits.max_wanted * width * sizeof(float), ops::MemoryKind::host));
  }
  KVASIR_TRY(m->host_picked,
             device.allocate(Impl::kMaxLaunched * limits.max_wanted * sizeof(TokenId),
                             ops::MemoryKind::host));
  m->scratch.kv_type = m->exact_f32 || device.is_exact() ? DType::f32 : DType::bf16;
  return std::unique_ptr<Model>(new Model(std::move(m)));
}

Status Model::launch(const StepBatch& batch) {
  Impl& m = *impl_;
  KVASIR_CHECK(m.n_launched < Impl::kMaxLaunched) << "collect() comes first";
  KVASIR_TRY_DO(check_batch(batch, m.config, m.kv_list, m.limits, m.n_last_picked));
  Launched out{.logits = {.data = nullptr, .n_rows = 0, .vocab = output_width()}};
  out.slot = m.n_launches++ % Impl::kMaxLaunched;
  m.device.begin_step(batch.tokens.size());
  if (!batch.tokens.empty())
    out.logits =
        Decoder(m.device, m.config, m.weights, m.ropes, m.kv_entries, m.scratch).forward(batch);
  if (!batch.picks.empty()) out.n_picked = pick(batch.picks, out);
  if (!m.device.shares_host_memory()) copy_scores(batch.picks, out.logits);
  m.device.submit_step();
  m.n_last_picked = out.n_picked;
  m.launched[m.n_launched++] = out;
  return {};
}

// The tokens of the step's rows, on the device for the next step and on their way to the host.
std::size_t Model::pick(std::span<const PickRow> rows, const Launched& step) {
  Impl& m = *impl_;
  const auto n = static_cast<std::uint32_t>(rows.size());
  TokenId* const picked = m.scratch.picked.data();
  m.device.ops().pick(m.device,
                      {.scores = m.scratch.logits.rows(0, n), .rows = rows, .picked = picked});
  const std::size_t at = step.slot * m.limits.max_wanted * sizeof(TokenId);
  m.device.copy(m.host_picked.data() + at, reinterpret_cast<const std::byte*>(picked),
                n * sizeof(TokenId));
  return n;
}

// Those that nobody picks from on the device, neighbours together.
void Model::copy_scores(std::span<const PickRow> picks, LogitsView& logits) {
  Impl& m = *impl_;
  const auto is_wanted = [&](std::size_t i) {
    return picks.empty() || picks[i].kind == PickKind::none;
  };
  const std::size_t row_bytes = logits.vocab * sizeof(float);
  for (std::size_t i = 0; i < logits.n_rows;) {
    std::size_t end = i;
    while (end < logits.n_rows && is_wanted(end)) ++end;
    if (end > i)
      m.device.copy(m.host_output.data() + i * row_bytes,
                    reinterpret_cast<const std::byte*>(logits.data + i * logits.vocab),
                    (end - i) * row_bytes);
    i = end + (end == i ? 1 : 0);
  }
  if (logits.n_rows > 0) logits.data = m.host_output.f32();
}

Result<StepOutput> Model::collect() {
  Impl& m = *impl_;
  KVASIR_CHECK(m.n_launched > 0) << "nothing was launched";
  const Launched step = m.launched[0];
  m.launched[0] = m.launched[1];
  --m.n_launched;
  KVASIR_TRY_DO(m.device.await_step());
  const auto* const picked = reinterpret_cast<const TokenId*>(m.host_picked.data());
  return StepOutput{step.logits, {picked + step.slot * m.limits.max_wanted, step.n_picked}};
}

bool Model::runs_behind() const noexcept { return impl_->device.runs_behind(); }
bool Model::picks_tokens() const noexcept { return impl_->config.has_head; }

void Model::replay(const StepBatch& batch, std::span<const std::uint32_t> keep) noexcept {
  Decoder(impl_->device, impl_->config, impl_->weights, impl_->ropes, impl_->kv_entries,
          impl_->scratch)
      .replay(batch, keep);
}

std::uint32_t Model::max_tentative_tokens() const noexcept {
  return has_recurrent_layers(impl_->config) ? impl_->limits.max_tentative : max_step_tokens();
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
    cost.linear_flops += 2 * products_per_token(layer, config.hidden) * n_tokens;
    add_attention(layer, config.encoder.has_value(), n_tokens, context, kv_type, cost);
    if (layer.is_recurrent()) {
      cost.attention_flops += 2 * recurrence_per_token(layer) * n_tokens;
      cost.kv_bytes += 2 * state_bytes(impl_->kv_list[impl_->kv_entries[i]].recurrent, kv_type);
    }
    if (layer.moe)
      cost.weight_bytes -= idle_expert_bytes(*weights.layers[i].moe, *layer.moe, n_tokens);
  }
  return cost;
}

Result<std::vector<formats::WantedTensor>> wanted_tensors(const formats::ModelFiles& blank) {
  KVASIR_TRY(const DecoderConfig config, describe_model(blank, /*max_context=*/0));
  KVASIR_TRY_DO(rehearse_weights(blank, config));
  return blank.wanted();
}

std::uint64_t scratch_bytes(const DecoderConfig& config,
                            std::uint32_t max_step_tokens,
                            std::uint32_t max_wanted,
                            std::uint32_t max_tentative_tokens) {
  return scratch_size_bytes(
      config, {.max_step_tokens = max_step_tokens,
               .max_wanted = max_wanted && config.has_head ? max_wanted : max_step_tokens,
               .max_tentative = max_tentative_tokens});
}

}  // namespace kvasir::model
