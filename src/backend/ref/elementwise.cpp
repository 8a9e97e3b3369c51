// Norms, rotary positions, activations and copies, each value in f64 and rounded once at the end.
// The mirror's are in mirror_elementwise.cpp.
#include <cmath>
#include <cstring>
#include <numbers>

#include "backend/ref/detail/mirror_math.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

double activate(ops::Activation activation, double x) noexcept {
  switch (activation) {
    case ops::Activation::silu:
      return x / (1.0 + std::exp(-x));
    case ops::Activation::gelu:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case ops::Activation::gelu_tanh: {
      const double inner = std::sqrt(2.0 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case ops::Activation::sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case ops::Activation::identity:
      return x;
    case ops::Activation::clamped_swiglu:
      return x / (1.0 + std::exp(-1.702 * x));
  }
  return x;
}

// Clamps let a NaN through.
double clamped_swiglu(double gate, double up, double limit) noexcept {
  const double g = gate > limit ? limit : gate;
  const double u = up > limit ? limit : up < -limit ? -limit : up;
  return activate(ops::Activation::clamped_swiglu, g) * (u + 1.0);
}

}  // namespace

void rms_norm(ops::Device& device, const ops::RmsNormArgs& a) noexcept {
  if (mode_of(device) == RefMode::mirror) return mirror_rms_norm(a);
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    for (std::size_t begin = 0; begin < a.x.n_cols; begin += a.group) {
      const float* x = a.x.row(t) + begin;
      float* out = a.out.row(t) + begin;
      double sum = 0.0;
      for (std::size_t i = 0; i < a.group; ++i)
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      const double inverse = 1.0 / std::sqrt(sum / a.group + static_cast<double>(a.eps));
      for (std::size_t i = 0; i < a.group; ++i) {
        const double weight = a.weight ? static_cast<double>(a.weight[i]) : 1.0;
        out[i] = static_cast<float>(static_cast<double>(x[i]) * inverse * weight);
      }
    }
  }
}

void layer_norm(ops::Device& device, const ops::LayerNormArgs& a) noexcept {
  if (mode_of(device) == RefMode::mirror) return mirror_layer_norm(a);
  const std::size_t n = a.x.n_cols;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    const float* x = a.x.row(t);
    double sum = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
    const double mean = sum / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double centred = static_cast<double>(x[i]) - mean;
      squares += centred * centred;
    }
    const double inverse =
        1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(a.eps));
    for (std::size_t i = 0; i < n; ++i) {
      const double y =
          (static_cast<double>(x[i]) - mean) * inverse * static_cast<double>(a.weight[i]);
      a.out.row(t)[i] = static_cast<float>(a.bias ? y + static_cast<double>(a.bias[i]) : y);
    }
  }
}

void rope(ops::Device& device, const ops::RopeArgs& a) noexcept {
  if (mode_of(device) == RefMode::mirror) return mirror_rope(a);
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    const float* cos = a.cos + std::size_t{a.positions[t]} * a.n_pairs;
    const float* sin = a.sin + std::size_t{a.positions[t]} * a.n_pairs;
    for (std::size_t begin = 0; begin < a.x.n_cols; begin += a.head_dim) {
      float* head = a.x.row(t) + begin;
      for (std::size_t i = 0; i < a.n_pairs; ++i) {
        float& first = head[a.interleaved ? 2 * i : i];
        float& second = head[a.interleaved ? 2 * i + 1 : i + a.n_pairs];
        const double p = static_cast<double>(first), q = static_cast<double>(second);
        const double c = static_cast<double>(cos[i]), s = static_cast<double>(sin[i]);
        first = static_cast<float>(p * c - q * s);
        second = static_cast<float>(q * c + p * s);
      }
    }
  }
}

void act_mul(ops::Device& device, const ops::ActMulArgs& a) noexcept {
  if (mode_of(device) == RefMode::mirror) return mirror_act_mul(a);
  for (std::size_t t = 0; t < a.gate.n_rows; ++t) {
    for (std::size_t i = 0; i < a.gate.n_cols; ++i) {
      const double gate = static_cast<double>(a.gate.row(t)[i]);
      const double up = static_cast<double>(a.up.row(t)[i]);
      a.out.row(t)[i] =
          static_cast<float>(a.activation == ops::Activation::clamped_swiglu
                                 ? clamped_swiglu(gate, up, static_cast<double>(a.limit))
                                 : activate(a.activation, gate) * up);
    }
  }
}

void gate_rows(ops::Device& device, const ops::GateRowsArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    const float gate = a.gate.row(t)[0];
    for (std::size_t i = 0; i < a.x.n_cols; ++i) {
      float& x = a.x.row(t)[i];
      x = mode_of(device) == RefMode::mirror
              ? x * mirror_sigmoid(gate)
              : static_cast<float>(static_cast<double>(x) *
                                   activate(ops::Activation::sigmoid, static_cast<double>(gate)));
    }
  }
}

void add_scaled(ops::Device&, const ops::AddScaledArgs& a) noexcept {
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    for (std::size_t i = 0; i < a.x.n_cols; ++i) a.x.row(t)[i] += a.y.row(t)[i] * a.alpha;
  }
}

void scale(ops::Device& device, const ops::ScaleArgs& a) noexcept {
  if (mode_of(device) == RefMode::mirror) return mirror_scale(a);
  const double cap = static_cast<double>(a.softcap);
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    for (std::size_t i = 0; i < a.x.n_cols; ++i) {
      float& x = a.x.row(t)[i];
      x *= a.alpha;
      if (a.softcap > 0.0f) x = static_cast<float>(cap * std::tanh(static_cast<double>(x) / cap));
    }
  }
}

void gather_rows(ops::Device&, const ops::GatherRowsArgs& a) noexcept {
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    std::memcpy(a.out.row(i), a.x.row(a.rows[i]), a.x.n_cols * sizeof(float));
  }
}

}  // namespace kvasir::backend::ref
