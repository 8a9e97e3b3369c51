// Norms, rotary positions and activations with backend/cpu's roundings and orders of addition
// (docs/numerics.md).
#include <cmath>

#include "backend/ref/detail/mirror_math.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

// Column i goes to lane i mod 16 of accumulator (i / 16) mod 4; (0 + 1) + (2 + 3); halves of the
// lanes. add(accumulator, x) is the accumulator's next value.
template <class Add>
float sum_columns(const float* x, std::size_t n, Add add) noexcept {
  float sums[4][16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    float& sum = sums[i / 16 % 4][i % 16];
    sum = add(sum, x[i]);
  }
  float lanes[16];
  for (int l = 0; l < 16; ++l) lanes[l] = (sums[0][l] + sums[1][l]) + (sums[2][l] + sums[3][l]);
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

float sum_of_squares(const float* x, std::size_t n) noexcept {
  return sum_columns(x, n, [](float sum, float v) { return std::fma(v, v, sum); });
}

float activate(ops::Activation activation, float x) noexcept {
  switch (activation) {
    case ops::Activation::silu:
      return mirror_silu(x);
    case ops::Activation::gelu:
      return mirror_gelu(x);
    case ops::Activation::gelu_tanh:
      return mirror_gelu_tanh(x);
    case ops::Activation::sigmoid:
      return mirror_sigmoid(x);
    case ops::Activation::identity:
      return x;
    case ops::Activation::clamped_swiglu:
      return x / (1.0f + mirror_exp(-1.702f * x));
  }
  return x;
}

float clamped_swiglu(float gate, float up, float limit) noexcept {
  const float g = limit < gate ? limit : gate;
  const float below = limit < up ? limit : up, u = -limit > below ? -limit : below;
  return activate(ops::Activation::clamped_swiglu, g) * (u + 1.0f);
}

}  // namespace

void mirror_rms_norm(const ops::RmsNormArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    for (std::size_t begin = 0; begin < a.x.n_cols; begin += a.group) {
      const float* x = a.x.row(t) + begin;
      float* out = a.out.row(t) + begin;
      const float mean = sum_of_squares(x, a.group) / static_cast<float>(a.group);
      const float inverse = 1.0f / std::sqrt(mean + a.eps);
      for (std::size_t i = 0; i < a.group; ++i)
        out[i] = a.weight ? (x[i] * inverse) * a.weight[i] : x[i] * inverse;
    }
  }
}

void mirror_layer_norm(const ops::LayerNormArgs& a) noexcept {
  const FloatModeScope mode;
  const std::size_t n = a.x.n_cols;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    const float* x = a.x.row(t);
    float* out = a.out.row(t);
    const float mean =
        sum_columns(x, n, [](float sum, float v) { return sum + v; }) / static_cast<float>(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = x[i] - mean;
    const float inverse = 1.0f / std::sqrt(sum_of_squares(out, n) / static_cast<float>(n) + a.eps);
    for (std::size_t i = 0; i < n; ++i) {
      const float y = (out[i] * inverse) * a.weight[i];
      out[i] = a.bias ? y + a.bias[i] : y;
    }
  }
}

void mirror_rope(const ops::RopeArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    const float* cos = a.cos + std::size_t{a.positions[t]} * a.n_pairs;
    const float* sin = a.sin + std::size_t{a.positions[t]} * a.n_pairs;
    for (std::size_t begin = 0; begin < a.x.n_cols; begin += a.head_dim) {
      float* head = a.x.row(t) + begin;
      for (std::size_t i = 0; i < a.n_pairs; ++i) {
        float& first = head[a.interleaved ? 2 * i : i];
        float& second = head[a.interleaved ? 2 * i + 1 : i + a.n_pairs];
        const float p = first, q = second;
        first = std::fma(-q, sin[i], p * cos[i]);
        second = std::fma(p, sin[i], q * cos[i]);
      }
    }
  }
}

void mirror_act_mul(const ops::ActMulArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.gate.n_rows; ++t) {
    for (std::size_t i = 0; i < a.gate.n_cols; ++i) {
      const float gate = a.gate.row(t)[i], up = a.up.row(t)[i];
      a.out.row(t)[i] = a.activation == ops::Activation::clamped_swiglu
                            ? clamped_swiglu(gate, up, a.limit)
                            : activate(a.activation, gate) * up;
    }
  }
}

void mirror_scale(const ops::ScaleArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    for (std::size_t i = 0; i < a.x.n_cols; ++i) {
      float& x = a.x.row(t)[i];
      x *= a.alpha;
      if (a.softcap > 0.0f) x = a.softcap * mirror_tanh(x / a.softcap);
    }
  }
}

}  // namespace kvasir::backend::ref
