// Gated delta layers and short convolutions, whichever way a file fuses and turns them.
#include <cmath>
#include <string>

#include "model/detail/weight_source.h"

namespace kvasir::model {
namespace {

// "{name}.weight" as [kernel, n_channels]: original files store [n_channels, 1, kernel], converted
// ones [n_channels, kernel, 1] (MOD-43), GGUF [n_channels, kernel]; all hold the taps of a channel
// one after another.
Result<Vector> load_taps(WeightSource& source,
                         const std::string& name,
                         std::uint32_t n_channels,
                         std::uint32_t kernel) {
  KVASIR_TRY(const std::vector<float> stored,
             source.files().vector(
                 name + ".weight",
                 {{n_channels, kernel, 1}, {n_channels, 1, kernel}, {n_channels, kernel}}));
  std::vector<float> out(stored.size());
  for (std::size_t c = 0; c < n_channels; ++c) {
    for (std::size_t tap = 0; tap < kernel; ++tap)
      out[tap * n_channels + c] = stored[c * kernel + tap];
  }
  return source.settle(out);
}

// Rows of a projection that is stored group by group, [parts[0] | parts[1] | …] for each key head:
// all first parts, then all second ones, …
std::vector<RowRun> ungrouped(std::uint32_t n_groups, std::span<const std::uint32_t> parts) {
  std::uint32_t group = 0;
  for (const std::uint32_t part : parts) group += part;
  std::vector<RowRun> out;
  std::uint32_t first = 0;
  for (const std::uint32_t part : parts) {
    for (std::uint32_t g = 0; g < n_groups; ++g) out.push_back({g * group + first, part});
    first += part;
  }
  return out;
}

Status load_inputs(WeightSource& source,
                   const DeltaSpec& d,
                   const std::string& prefix,
                   SideBySide& out) {
  const std::uint32_t hidden = source.config().hidden;
  const std::uint32_t n_values = d.n_value_heads / d.n_key_heads, values = n_values * d.value_dim;
  if (d.fused_qkvz) {
    const std::uint32_t parts[] = {d.key_dim, d.key_dim, values, values};
    KVASIR_TRY_DO(source.append_runs(out, prefix + "in_proj_qkvz", hidden, /*has_bias=*/false,
                                     ungrouped(d.n_key_heads, parts)));
  } else {
    KVASIR_TRY_DO(source.append(out, prefix + "in_proj_qkv", d.conv_width(), hidden, false));
    KVASIR_TRY_DO(source.append(out, prefix + "in_proj_z", d.values_width(), hidden, false));
  }
  if (d.fused_ba) {
    const std::uint32_t parts[] = {n_values, n_values};
    return source.append_runs(out, prefix + "in_proj_ba", hidden, /*has_bias=*/false,
                              ungrouped(d.n_key_heads, parts));
  }
  KVASIR_TRY_DO(source.append(out, prefix + "in_proj_b", d.n_value_heads, hidden, false));
  return source.append(out, prefix + "in_proj_a", d.n_value_heads, hidden, false);
}

// A_log, or A = −exp(A_log) as GGUF files have it.
Result<Vector> load_a_log(WeightSource& source, const std::string& prefix, std::uint32_t n) {
  if (!source.files().has(prefix + "A")) return source.vector(prefix + "A_log", n);
  KVASIR_TRY(std::vector<float> out, source.numbers(prefix + "A", n));
  for (float& a : out) {
    if (!(a <= 0.0f)) {
      return invalid(source.files().path().string() + ": tensor '" + prefix +
                     "A' has an element that is not −exp(x)");
    }
    a = static_cast<float>(std::log(-double(a)));
  }
  return source.settle(out);
}

}  // namespace

Result<DeltaWeights> load_delta(WeightSource& source,
                                const DeltaSpec& delta,
                                const std::string& prefix) {
  DeltaWeights out;
  KVASIR_TRY_DO(load_inputs(source, delta, prefix, out.in));
  KVASIR_TRY(out.conv, load_taps(source, prefix + "conv1d", delta.conv_width(), delta.conv_kernel));
  KVASIR_TRY(out.a_log, load_a_log(source, prefix, delta.n_value_heads));
  KVASIR_TRY(out.dt_bias, source.vector(prefix + "dt_bias", delta.n_value_heads));
  KVASIR_TRY(out.norm, source.vector(prefix + "norm.weight", delta.value_dim));
  KVASIR_TRY(out.out, source.linear(prefix + "out_proj", source.config().hidden,
                                    delta.values_width(), /*has_bias=*/false));
  return out;
}

Result<ShortConvWeights> load_short_conv(WeightSource& source,
                                         const ShortConvSpec& conv,
                                         const std::string& prefix) {
  ShortConvWeights out;
  const std::uint32_t hidden = source.config().hidden;
  KVASIR_TRY(out.in, source.linear(prefix + "in_proj", 3 * conv.width, hidden, conv.bias));
  KVASIR_TRY(out.conv, load_taps(source, prefix + "conv", conv.width, conv.kernel));
  if (conv.bias) {
    KVASIR_TRY(out.conv_bias, source.vector(prefix + "conv.bias", conv.width));
  }
  KVASIR_TRY(out.out, source.linear(prefix + "out_proj", hidden, conv.width, conv.bias));
  return out;
}

}  // namespace kvasir::model
