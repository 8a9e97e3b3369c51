// embed and linear. The oracle sums in f64; the mirror follows the product order of
// docs/numerics.md.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

float dot_f64(const float* w, const float* x, std::size_t n) noexcept {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j)
      sums[j] += static_cast<double>(w[i + j]) * static_cast<double>(x[i + j]);
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(w[i]) * static_cast<double>(x[i]);
  return static_cast<float>(((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                            ((sums[4] + sums[5]) + (sums[6] + sums[7])));
}

// One step of at most 32 elements: even and odd products in two chains from zero, added.
float step_product(const float* w, const float* x, std::size_t n) noexcept {
  float even = 0.0f, odd = 0.0f;
  for (std::size_t i = 0; i < n; i += 2) {
    even = std::fma(w[i], x[i], even);
    if (i + 1 < n) odd = std::fma(w[i + 1], x[i + 1], odd);
  }
  return even + odd;
}

float product(const float* w, const float* x, std::size_t n) noexcept {
  float sum = 0.0f;
  for (std::size_t i = 0; i < n; i += 32)
    sum += step_product(w + i, x + i, std::min<std::size_t>(32, n - i));
  return sum;
}

float quantized_product(const RefMatrix& m,
                        std::size_t r,
                        const float* x,
                        const float* group_sums) noexcept {
  const std::size_t n_in = m.n_in(), n_groups = n_in / m.group;
  std::vector<float> codes(m.group);
  const auto shift = static_cast<float>(m.code_shift);
  float sum = 0.0f;
  for (std::size_t g = 0; g < n_groups; ++g) {
    for (std::size_t i = 0; i < m.group; ++i)
      codes[i] = static_cast<float>(m.codes[r * n_in + g * m.group + i]) - shift;
    const float scale = m.scales[r * n_groups + g], bias = m.biases[r * n_groups + g];
    sum = std::fma(scale, product(codes.data(), x + g * m.group, m.group), sum);
    if (m.has_bias)
      sum = std::fma(shift > 0 ? std::fma(shift, scale, bias) : bias, group_sums[g], sum);
  }
  return sum;
}

// A group of bf16 values to whole units of a power of two: its largest has 2^bits of them or more.
void round_to_grid(std::span<float> x, int bits) noexcept {
  float most = 0.0f;
  bool is_finite = true;
  for (const float v : x) {
    is_finite = is_finite && std::isfinite(v);
    most = std::fmax(most, std::fabs(v));
  }
  if (!is_finite || most >= 0x1p100f)
    return std::fill(x.begin(), x.end(), std::numeric_limits<float>::quiet_NaN());
  if (most < 0x1p-100f) return std::fill(x.begin(), x.end(), 0.0f);
  const float unit = std::ldexp(1.0f, std::ilogb(most) - bits);
  for (float& v : x) v = std::nearbyint(v / unit) * unit;
}

void mirror_row(const RefMatrix& m, const float* x_in, float* out) {
  std::vector<float> x(x_in, x_in + m.n_in()), group_sums;
  if (!m.exact_f32) std::transform(x.begin(), x.end(), x.begin(), &round_to_bf16);
  for (std::size_t i = 0; m.grid != 0 && i < x.size(); i += m.group)
    round_to_grid({&x[i], m.group}, m.grid);
  if (m.group != 0) {
    const std::vector<float> ones(m.group, 1.0f);
    for (std::size_t i = 0; i < x.size(); i += m.group)
      group_sums.push_back(product(ones.data(), &x[i], m.group));
  }
  for (std::size_t r = 0; r < m.n_out(); ++r) {
    out[r] = m.group == 0 ? product(m.values.data() + r * x.size(), x.data(), x.size())
                          : quantized_product(m, r, x.data(), group_sums.data());
  }
}

float value_at(const RefMatrix& m, std::size_t r, std::size_t i) noexcept {
  const std::size_t at = r * m.n_in() + i;
  return m.codes.empty()
             ? m.values[at]
             : codec::dequantize(m.codes[at], m.scales[at / m.group], m.biases[at / m.group]);
}

// backend/cuda's weights and x, the sum in f64.
void mirror_cuda_row(const RefMatrix& m, const float* x_in, float* out) {
  std::vector<float> x(x_in, x_in + m.n_in()), w(m.n_in());
  if (!m.exact_f32) std::transform(x.begin(), x.end(), x.begin(), &round_to_bf16);
  for (std::size_t r = 0; r < m.n_out(); ++r) {
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = m.exact_f32 ? value_at(m, r, i) : round_to_bf16(value_at(m, r, i));
    out[r] = dot_f64(w.data(), x.data(), w.size());
  }
}

}  // namespace

void embed(ops::Device& device, const ops::EmbedArgs& a) noexcept {
  const RefMatrix& m = matrix_of(a.table);
  const FloatModeScope mode;
  static_cast<void>(device);
  for (std::size_t t = 0; t < a.tokens.size(); ++t) {
    for (std::size_t i = 0; i < m.n_in(); ++i)
      a.out.row(t)[i] = value_at(m, token_of(a, t), i) * a.scale;
  }
}

void linear(ops::Device& device, const ops::LinearArgs& a) noexcept {
  const RefMatrix& m = matrix_of(a.weight);
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    const float* x = a.x.row(t);
    float* out = a.out.row(t);
    if (m.takes_int8) {
      mirror_int8_row(m, x, out);
    } else if (mode_of(device) == RefMode::mirror) {
      mirror_row(m, x, out);
    } else if (mode_of(device) == RefMode::mirror_cuda) {
      mirror_cuda_row(m, x, out);
    } else {
      for (std::size_t r = 0; r < m.n_out(); ++r)
        out[r] = dot_f64(m.values.data() + r * m.n_in(), x, m.n_in());
    }
    if (a.bias) {
      for (std::size_t r = 0; r < m.n_out(); ++r) out[r] += a.bias[r];
    }
  }
}

}  // namespace kvasir::backend::ref
