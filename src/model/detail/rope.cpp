#include "model/detail/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

namespace kvasir::model {
namespace {

constexpr double kMaxTheta = 1e15, kMaxFactor = 1e6, kMinFactor = 1e-3;

// theta^(−2i / dim) of pairs [0, n_pairs)
std::vector<double> powers_of(double theta, std::uint32_t n_pairs, std::uint32_t dim) {
  std::vector<double> out(n_pairs);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::pow(theta, -2.0 * double(i) / dim);
  return out;
}

// One rope's members: those of rope_parameters (flat or of its layer type) or the older
// rope_scaling, with the top-level names that either dialect may use instead.
class RopeConfig {
 public:
  RopeConfig(const ConfigReader& whole,
             std::string_view layer_type,
             std::uint32_t width,
             const RopeDefaults& defaults)
      : config(whole), rope(find_object(whole, layer_type)), head_dim(width) {
    type = rope.text_or("rope_type", rope.text_or("type", "default"));
    theta = number_or("rope_theta", defaults.theta, 1.5, kMaxTheta);
    const double partial = number_or("partial_rotary_factor", defaults.partial_rotary, 1e-4, 1.0);
    rotary_dim = static_cast<std::uint32_t>(head_dim * partial +
                                            1e-6);  // a fraction like 64/192 comes back whole
    if (type == "proportional") rotary_dim -= rotary_dim % 2;
    if (rotary_dim < 2 || rotary_dim % 2 != 0) {
      config.refuse("partial_rotary_factor",
                    "must make an even number of at least 2 of head_dim rotate");
      rotary_dim = 2;
    }
    model_positions = config.count("max_position_embeddings", kMaxPositions);
    const char* const kOriginal = "original_max_position_embeddings";
    original_positions = rope.count_or(
        kOriginal, config.count_or(kOriginal, model_positions, kMaxPositions), kMaxPositions);
    if (original_positions == 0) original_positions = model_positions;
  }

  // A member of the rope object, else of config.json itself.
  double number_or(std::string_view name, double other, double min, double max) const {
    return rope.has(name) ? rope.number(name, min, max) : config.number_or(name, other, min, max);
  }
  double factor() const { return rope.number("factor", kMinFactor, kMaxFactor); }
  // Phi-style files leave the factor out: it is how much longer than the original the model was
  // made.
  double factor_or_ratio() const {
    return rope.number_or("factor", double(model_positions) / original_positions, kMinFactor,
                          kMaxFactor);
  }
  std::uint32_t n_pairs() const noexcept { return rotary_dim / 2; }

  const ConfigReader& config;
  ConfigObject rope;
  std::uint32_t head_dim = 0;
  std::string type;
  double theta = 0.0;
  std::uint32_t rotary_dim = 0;
  std::uint32_t model_positions = 0;
  std::uint32_t original_positions = 0;

 private:
  static ConfigObject find_object(const ConfigReader& whole, std::string_view layer_type) {
    if (!whole.has("rope_parameters")) return whole.object("rope_scaling");
    const ConfigObject flat = whole.object("rope_parameters");
    return flat.has(layer_type) ? flat.object(layer_type) : flat;
  }
};

void scale_linear(const RopeConfig& rope, RopeReading& out) {
  const double factor = rope.factor();
  for (double& f : out.spec.inverse_frequencies) f /= factor;
}

// Llama 3.1: long waves are stretched by the factor, short ones kept, those between blended by
// their turns within the original context.
void scale_llama3(const RopeConfig& rope, RopeReading& out) {
  const double factor = rope.factor(), original = rope.original_positions;
  const double low = rope.rope.number("low_freq_factor", kMinFactor, kMaxFactor);
  const double high = rope.rope.number("high_freq_factor", kMinFactor, kMaxFactor);
  if (!(high > low)) return rope.rope.refuse("high_freq_factor", "must be above low_freq_factor");
  for (double& f : out.spec.inverse_frequencies) {
    const double turns = original * f / (2.0 * std::numbers::pi);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    f = (1.0 - kept) * f / factor + kept * f;
  }
}

// The pairs are those of the whole head, the first of them rotate as they would in a full rope, the
// others stand still.
void scale_proportional(const RopeConfig& rope, RopeReading& out) {
  auto& frequencies = out.spec.inverse_frequencies;
  frequencies = powers_of(rope.theta, rope.n_pairs(), rope.head_dim);
  const double factor = rope.rope.number_or("factor", 1.0, kMinFactor, kMaxFactor);
  for (double& f : frequencies) f /= factor;
  frequencies.resize(rope.head_dim / 2, 0.0);
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Peng et al., "YaRN", 2023: pairs that turn more than beta_fast times within the original context
// are kept, those below beta_slow turns stretched, a linear ramp over the pair index between.
void scale_yarn(const RopeConfig& rope, RopeReading& out) {
  const ConfigObject& r = rope.rope;
  const double factor = rope.factor_or_ratio();
  const auto or_default = [&](std::string_view name, double other) {
    const double x = r.number_or(name, other, 0.0, kMaxFactor);
    return x > 0.0 ? x : other;
  };
  const double beta_fast = or_default("beta_fast", 32.0), beta_slow = or_default("beta_slow", 1.0);
  const auto pair_of_turns = [&](double turns) {
    return rope.rotary_dim * std::log(rope.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_of_turns(beta_fast), high = pair_of_turns(beta_slow);
  if (r.flag_or("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  auto& frequencies = out.spec.inverse_frequencies;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / factor * stretched + frequencies[i] * (1.0 - stretched);
  }
  const double mscale = r.number_or("mscale", 0.0, 0.0, kMaxFactor),
               all_dim = r.number_or("mscale_all_dim", 0.0, 0.0, kMaxFactor);
  const double natural = mscale > 0.0 && all_dim > 0.0
                             ? yarn_mscale(factor, mscale) / yarn_mscale(factor, all_dim)
                             : yarn_mscale(factor, 1.0);
  out.spec.attention_factor = r.number_or("attention_factor", natural, kMinFactor, kMaxFactor);
  if (all_dim > 0.0) out.score_scale = std::pow(yarn_mscale(factor, all_dim), 2.0);
  const double reach =
      std::min<double>(std::floor(factor * rope.original_positions), kMaxPositions);
  if (r.has("original_max_position_embeddings"))
    out.max_positions = std::max(out.max_positions, static_cast<std::uint32_t>(reach));
}

// Ding et al., "LongRoPE", 2024. One set of divisors for the life of the model, chosen by the
// context that is served.
void scale_longrope(const RopeConfig& rope, RopeReading& out) {
  const std::uint32_t served =
      rope.config.served_context() ? rope.config.served_context() : out.max_positions;
  const bool is_long = served > rope.original_positions;
  const std::vector<double> divisors =
      rope.rope.numbers(is_long ? "long_factor" : "short_factor", rope.n_pairs(), 1e-6, 1e9);
  for (std::size_t i = 0; i < divisors.size(); ++i) out.spec.inverse_frequencies[i] /= divisors[i];
  const double factor = rope.factor_or_ratio(), original = std::max(rope.original_positions, 2u);
  const double natural =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
  out.spec.attention_factor =
      rope.rope.number_or("attention_factor", natural, kMinFactor, kMaxFactor);
  out.choice = is_long ? "longrope:long" : "longrope:short";
}

}  // namespace

RopeReading read_rope(const ConfigReader& config,
                      std::string_view layer_type,
                      std::uint32_t head_dim,
                      RopeDefaults defaults) {
  RopeReading out;
  out.spec.interleaved = config.flag_or("kvasir_rope_interleaved", defaults.interleaved);
  if (defaults.sliding_theta && layer_type == kSlidingAttention &&
      !config.object("rope_parameters").has(layer_type)) {
    out.max_positions = config.count("max_position_embeddings", kMaxPositions);
    out.spec.inverse_frequencies = powers_of(*defaults.sliding_theta, head_dim / 2, head_dim);
    return out;
  }
  const RopeConfig rope(config, layer_type, head_dim, defaults);
  out.max_positions = rope.model_positions;
  out.spec.inverse_frequencies = powers_of(rope.theta, rope.n_pairs(), rope.rotary_dim);
  if (rope.type == "longrope" || rope.type == "su") {
    scale_longrope(rope, out);
  } else if (rope.type == "linear") {
    scale_linear(rope, out);
  } else if (rope.type == "llama3") {
    scale_llama3(rope, out);
  } else if (rope.type == "yarn") {
    scale_yarn(rope, out);
  } else if (rope.type == "proportional") {
    scale_proportional(rope, out);
  } else if (rope.type == "dynamic") {
    out.max_positions = std::min(rope.original_positions, rope.model_positions);
  } else if (rope.type != "default") {
    rope.rope.refuse("rope_type", "'" + rope.type +
                                      "' is not supported; supported: default, linear, dynamic, "
                                      "llama3, yarn, longrope, proportional");
  }
  return out;
}

Result<RopeTable> build_rope_table(ops::Device& device,
                                   const RopeSpec& spec,
                                   std::uint32_t n_positions) {
  RopeTable table;
  table.n_pairs = static_cast<std::uint32_t>(spec.inverse_frequencies.size());
  table.interleaved = spec.interleaved;
  const std::size_t n = std::size_t{n_positions} * table.n_pairs;
  KVASIR_TRY(table.memory, device.allocate(2 * n * sizeof(float)));
  Buffer made;  // where the device's memory is not the host's
  if (!device.shares_host_memory()) {
    KVASIR_TRY(made, device.allocate(2 * n * sizeof(float), ops::MemoryKind::host));
  }
  float* const cos = device.shares_host_memory() ? table.memory.f32() : made.f32();
  float* const sin = cos + n;
  const auto fill = [&](std::size_t first, std::size_t last) {
    std::size_t at = first * table.n_pairs;
    for (std::size_t position = first; position < last; ++position) {
      for (const double frequency : spec.inverse_frequencies) {
        const double angle = double(position) * frequency;
        cos[at] = static_cast<float>(std::cos(angle) * spec.attention_factor);
        sin[at++] = static_cast<float>(std::sin(angle) * spec.attention_factor);
      }
    }
  };
  // Millions of them where contexts are long: on all threads.
  constexpr std::size_t kPairsOfAThread = 1u << 17;
  const auto n_threads =
      std::min<std::size_t>(static_cast<std::size_t>(device.n_threads()), n / kPairsOfAThread + 1);
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < n_threads; ++t)
    others.emplace_back(fill, n_positions * t / n_threads, n_positions * (t + 1) / n_threads);
  fill(0, n_positions / n_threads);
  others.clear();
  if (!device.shares_host_memory())
    device.copy(table.memory.data(), made.data(), 2 * n * sizeof(float));
  KVASIR_TRY_DO(device.synchronize());
  table.cos = table.memory.f32();
  table.sin = table.cos + n;
  return table;
}

}  // namespace kvasir::model
