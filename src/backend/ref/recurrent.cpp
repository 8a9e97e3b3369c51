// Recurrent layers. The oracle takes each token in f64 and rounds the state once a token, so that
// chunks and replays agree; the mirror has backend/cpu's roundings and orders (docs/numerics.md).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/ref/detail/mirror_math.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

double f64(float x) noexcept { return static_cast<double>(x); }

// The inputs that the convolution of a row sees: its tail, then this step's tokens.
std::vector<float> inputs_of(const ops::CausalConvArgs& a, const RecurrentRowView& row) {
  const std::size_t n = a.state.n_channels, n_tail = (a.state.conv_kernel - 1) * n;
  const bool is_f32 = a.state.conv_type == DType::f32;
  std::vector<float> in(n_tail + row.n_new * n, 0.0f);
  for (std::size_t i = 0; row.conv_from != nullptr && i < n_tail; ++i) {
    BFloat16 half;
    is_f32 ? std::memcpy(&in[i], row.conv_from + 4 * i, 4)
           : std::memcpy(&half, row.conv_from + 2 * i, 2);
    if (!is_f32) in[i] = to_f32(half);
  }
  for (std::size_t t = 0; t < row.n_new; ++t) {
    const float* x = a.x.row(row.first_token + t);
    for (std::size_t c = 0; c < n; ++c)
      in[n_tail + t * n + c] = is_f32 ? x[c] : round_to_bf16(x[c]);
  }
  return in;
}

void store_tail(const ops::CausalConvArgs& a,
                const RecurrentRowView& row,
                const std::vector<float>& in) {
  const std::size_t n_tail = (a.state.conv_kernel - 1) * std::size_t{a.state.n_channels};
  for (std::size_t i = 0; i < n_tail; ++i) {
    const float value = in[in.size() - n_tail + i];
    const BFloat16 half = to_bf16(value);
    a.state.conv_type == DType::f32 ? std::memcpy(row.conv_to + 4 * i, &value, 4)
                                    : std::memcpy(row.conv_to + 2 * i, &half, 2);
  }
}

float convolve(const ops::CausalConvArgs& a, bool is_mirror, const float* in, std::size_t c) {
  const std::size_t n = a.state.n_channels;
  if (is_mirror) {
    float sum = 0.0f;
    for (std::size_t j = 0; j < a.state.conv_kernel; ++j)
      sum = std::fma(a.weight[j * n + c], in[j * n], sum);
    if (a.bias) sum += a.bias[c];
    return a.silu ? mirror_silu(sum) : sum;
  }
  double sum = a.bias ? f64(a.bias[c]) : 0.0;
  for (std::size_t j = 0; j < a.state.conv_kernel; ++j)
    sum += f64(a.weight[j * n + c]) * f64(in[j * n]);
  return static_cast<float>(a.silu ? sum / (1.0 + std::exp(-sum)) : sum);
}

// Σ a·b in the lanes of rms_norm's sum of squares.
float lane_product(const float* a, const float* b, std::size_t n) noexcept {
  float sums[4][16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    float& sum = sums[i / 16 % 4][i % 16];
    sum = std::fma(a[i], b[i], sum);
  }
  float lanes[16];
  for (int l = 0; l < 16; ++l) lanes[l] = (sums[0][l] + sums[1][l]) + (sums[2][l] + sums[3][l]);
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

double product(const float* a, const float* b, std::size_t n) noexcept {
  double sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) sum += f64(a[i]) * f64(b[i]);
  return sum;
}

struct DeltaToken {
  const float *q, *k;
  float v, decay, beta;
};

// One row of S takes in one token; its output.
float mirror_step(float* s, const DeltaToken& x, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) s[i] *= x.decay;
  const float delta = (x.v - lane_product(s, x.k, n)) * x.beta;
  for (std::size_t i = 0; i < n; ++i) s[i] = std::fma(delta, x.k[i], s[i]);
  return lane_product(s, x.q, n);
}

// The output takes the state unrounded: what cancels in it must not leave the state's last bits.
float oracle_step(float* s, const DeltaToken& x, std::size_t n) noexcept {
  const double delta = (f64(x.v) - f64(x.decay) * product(s, x.k, n)) * f64(x.beta);
  double y = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    const double next = f64(s[i]) * f64(x.decay) + delta * f64(x.k[i]);
    y += next * f64(x.q[i]);
    s[i] = static_cast<float>(next);
  }
  return static_cast<float>(y);
}

void delta_head(const ops::GatedDeltaArgs& a,
                bool is_mirror,
                const RecurrentRowView& row,
                std::size_t head) {
  const std::size_t dk = a.state.key_dim, dv = a.state.value_dim,
                    values_per_key = a.state.n_value_heads / (a.q.n_cols / dk),
                    key_at = head / values_per_key * dk;
  float* const state = row.delta_to + head * a.state.head_floats();
  for (std::size_t t = row.first_token; t < row.first_token + row.n_new; ++t) {
    for (std::size_t d = 0; d < dv; ++d) {
      const DeltaToken x{.q = a.q.row(t) + key_at,
                         .k = a.k.row(t) + key_at,
                         .v = a.v.row(t)[head * dv + d],
                         .decay = a.decay.row(t)[head],
                         .beta = a.beta.row(t)[head]};
      const float y =
          is_mirror ? mirror_step(state + d * dk, x, dk) : oracle_step(state + d * dk, x, dk);
      if (a.out.data) a.out.row(t)[head * dv + d] = y;
    }
  }
}

}  // namespace

void l2_norm(ops::Device& device, const ops::L2NormArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.x.n_rows; ++t) {
    for (std::size_t begin = 0; begin < a.x.n_cols; begin += a.group) {
      const float* x = a.x.row(t) + begin;
      float* out = a.out.row(t) + begin;
      if (mode_of(device) == RefMode::mirror) {
        const float inverse = a.scale / std::sqrt(lane_product(x, x, a.group) + a.eps);
        for (std::size_t i = 0; i < a.group; ++i) out[i] = x[i] * inverse;
      } else {
        const double inverse = f64(a.scale) / std::sqrt(product(x, x, a.group) + f64(a.eps));
        for (std::size_t i = 0; i < a.group; ++i) out[i] = static_cast<float>(f64(x[i]) * inverse);
      }
    }
  }
}

void causal_conv(ops::Device& device, const ops::CausalConvArgs& a) noexcept {
  const FloatModeScope mode;
  const bool is_mirror = mode_of(device) == RefMode::mirror;
  for (const RecurrentRowView& row : a.state.rows) {
    const std::vector<float> in = inputs_of(a, row);
    for (std::size_t t = 0; a.out.data && t < row.n_new; ++t) {
      for (std::size_t c = 0; c < a.state.n_channels; ++c)
        a.out.row(row.first_token + t)[c] =
            convolve(a, is_mirror, &in[t * a.state.n_channels + c], c);
    }
    store_tail(a, row, in);
  }
}

void delta_gates(ops::Device& device, const ops::DeltaGatesArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.a.n_rows; ++t) {
    for (std::size_t h = 0; h < a.a.n_cols; ++h) {
      const float x = a.a.row(t)[h] + a.dt_bias[h], b = a.b.row(t)[h];
      if (mode_of(device) == RefMode::mirror) {
        a.decay.row(t)[h] = mirror_exp(0.0f - mirror_exp(a.a_log[h]) * mirror_softplus(x));
        a.beta.row(t)[h] = mirror_sigmoid(b);
      } else {
        const double softplus = std::fmax(f64(x), 0.0) + std::log1p(std::exp(-std::fabs(f64(x))));
        a.decay.row(t)[h] = static_cast<float>(std::exp(-std::exp(f64(a.a_log[h])) * softplus));
        a.beta.row(t)[h] = static_cast<float>(1.0 / (1.0 + std::exp(-f64(b))));
      }
    }
  }
}

void gated_delta(ops::Device& device, const ops::GatedDeltaArgs& a) noexcept {
  const FloatModeScope mode;
  for (const RecurrentRowView& row : a.state.rows) {
    if (row.delta_from == nullptr) {
      std::memset(row.delta_to, 0, a.state.delta_bytes());
    } else if (row.delta_from != row.delta_to) {
      std::memcpy(row.delta_to, row.delta_from, a.state.delta_bytes());
    }
    for (std::size_t h = 0; h < a.state.n_value_heads; ++h)
      delta_head(a, mode_of(device) == RefMode::mirror, row, h);
  }
}

}  // namespace kvasir::backend::ref
