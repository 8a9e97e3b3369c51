// Norms, rotary positions and activations with backend/cpu's roundings and orders of addition
// (docs/numerics.md).
#include <cmath>

#include "backend/ref/detail/mirror_math.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

// Column i goes to lane i mod 16 of accumulator (i / 16) mod 4; (0 + 1) + (2 + 3); halves of the
// lanes.
float sum_of_squares(const float* x, std::size_t n) noexcept {
  float sums[4][16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    float& sum = sums[i / 16 % 4][i % 16];
    sum = std::fma(x[i], x[i], sum);
  }
  float lanes[16];
  for (int l = 0; l < 16; ++l) lanes[l] = (sums[0][l] + sums[1][l]) + (sums[2][l] + sums[3][l]);
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

float activate(ops::Activation activation, float x) noexcept {
  switch (activation) {
    case ops::Activation::silu:
      return mirror_silu(x);
    case ops::Activation::gelu:
      return mirror_gelu(x);
    case ops::Activation::gelu_tanh:
      return mirror_gelu_tanh(x);
  }
  return x;
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
      a.out.row(t)[i] = activate(a.activation, a.gate.row(t)[i]) * a.up.row(t)[i];
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
