// backend/cpu's products with 8-bit activations (docs/numerics.md), one value at a time.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/ref/detail/ref_ops.h"

namespace kvasir::backend::ref {
namespace {

struct Int8Row {
  std::vector<std::int32_t> codes;  // [n_in]
  std::vector<float> scales, sums;  // [n_groups]; sums of the group's codes, times its scale
};

void quantize_group(const float* x, std::size_t n, Int8Row& to) {
  constexpr float kLeast = 0x1p-100f;
  float most = 0.0f;
  bool is_finite = true;
  for (std::size_t i = 0; i < n; ++i) {
    is_finite = is_finite && std::isfinite(x[i]);
    most = std::fmax(most, std::fabs(x[i]));
  }
  const bool is_zero = !is_finite || most < kLeast;
  const float inverse = is_zero ? 0.0f : 127.0f / most,
              scale = !is_finite ? std::numeric_limits<float>::quiet_NaN()
                      : is_zero  ? 0.0f
                                 : most / 127.0f;
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto code = is_zero ? 0 : static_cast<std::int32_t>(std::nearbyint(x[i] * inverse));
    to.codes.push_back(code);
    sum += code;
  }
  to.scales.push_back(scale);
  to.sums.push_back(scale * static_cast<float>(sum));
}

}  // namespace

void mirror_int8_row(const RefMatrix& m, const float* x, float* out) {
  const std::size_t n_in = m.n_in(), n_groups = n_in / m.group;
  Int8Row row;
  for (std::size_t g = 0; g < n_groups; ++g) quantize_group(x + g * m.group, m.group, row);
  for (std::size_t r = 0; r < m.n_out(); ++r) {
    float sum = 0.0f;
    for (std::size_t g = 0; g < n_groups; ++g) {
      std::int32_t dot = 0;
      for (std::size_t i = g * m.group; i < (g + 1) * m.group; ++i)
        dot += m.codes[r * n_in + i] * row.codes[i];
      const std::size_t at = r * n_groups + g;
      sum = std::fma(m.scales[at], static_cast<float>(dot) * row.scales[g], sum);
      if (m.has_bias) sum = std::fma(m.biases[at], row.sums[g], sum);
    }
    out[r] = sum;
  }
}

}  // namespace kvasir::backend::ref
