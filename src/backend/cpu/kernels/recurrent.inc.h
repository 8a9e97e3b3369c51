// Recurrent layers (ops/causal_conv.h, ops/gated_delta.h, ops/l2_norm.h) in the orders of
// docs/numerics.md. Lanes are channels in the convolution and key elements in the delta rule.

namespace kvasir::backend::cpu {
namespace {

// Column i goes to lane i mod 16 of accumulator (i / 16) mod 4; (0 + 1) + (2 + 3), then halves.
inline float sum_of_lanes(const F32x16 (&sums)[4]) {
  return sum_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

void l2_norm(const L2NormJob& job, std::uint32_t begin, std::uint32_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    for (std::size_t column = 0; column < job.n_cols; column += job.group) {
      const float* const x = job.x + row * job.x_stride + column;
      float* const out = job.out + row * job.out_stride + column;
      const F32x16 inverse = set1(job.scale / sqrt1(sum_of_squares(x, job.group) + job.eps));
      for_columns(job.group, [&](std::size_t i, std::size_t n) {
        store_n(out + i, mul(load_n(x + i, n), inverse), n);
      });
    }
  }
}

// Input r of a row, counted from the oldest of its tail.
inline F32x16 conv_input(
    const ConvJob& job, const ConvItem& item, std::size_t r, std::size_t c, std::size_t n) {
  const std::size_t n_tail = job.kernel - 1;
  if (r >= n_tail) {
    const F32x16 x = load_n(job.x + (item.token + r - n_tail) * job.x_stride + c, n);
    return job.is_f32 ? x : round_bf16(x);
  }
  if (item.from == nullptr) return zero();
  const std::uint8_t* const tail = item.from + (r * job.n_channels + c) * (job.is_f32 ? 4 : 2);
  return job.is_f32 ? load_n(reinterpret_cast<const float*>(tail), n)
                    : load_bf16_n(reinterpret_cast<const std::uint16_t*>(tail), n);
}

void causal_conv(const ConvJob& job, const ConvItem& item, std::uint32_t begin, std::uint32_t end) {
  for (std::size_t t = 0; job.out != nullptr && t < item.n_new; ++t) {
    float* const out = job.out + (item.token + t) * job.out_stride;
    for_columns(end - begin, [&](std::size_t i, std::size_t n) {
      const std::size_t c = begin + i;
      F32x16 sum = zero();
      for (std::size_t j = 0; j < job.kernel; ++j)
        sum = fma(load_n(job.weight + j * job.n_channels + c, n),
                  conv_input(job, item, t + j, c, n), sum);
      if (job.bias) sum = add(sum, load_n(job.bias + c, n));
      store_n(out + c, job.silu ? silu(sum) : sum, n);
    });
  }
  // Ascending: in place, a row of the tail is read before it is replaced.
  for (std::size_t r = 0; r + 1 < job.kernel; ++r) {
    for_columns(end - begin, [&](std::size_t i, std::size_t n) {
      const std::size_t c = begin + i;
      const F32x16 x = conv_input(job, item, r + item.n_new, c, n);
      std::uint8_t* const to = item.to + (r * job.n_channels + c) * (job.is_f32 ? 4 : 2);
      if (job.is_f32) {
        store_n(reinterpret_cast<float*>(to), x, n);
      } else {
        store_u16_n(reinterpret_cast<std::uint16_t*>(to), bf16_bits(x), n);
      }
    });
  }
}

void delta_gates(const DeltaGatesJob& job, std::uint32_t begin, std::uint32_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    for_columns(job.n_heads, [&](std::size_t i, std::size_t n) {
      const F32x16 x = add(load_n(job.a + row * job.a_stride + i, n), load_n(job.dt_bias + i, n));
      const F32x16 b = load_n(job.b + row * job.b_stride + i, n);
      const F32x16 rate = mul(exp(load_n(job.a_log + i, n)), softplus(x));
      store_n(job.decay + row * job.decay_stride + i, exp(sub(zero(), rate)), n);
      store_n(job.beta + row * job.beta_stride + i, sigmoid(b), n);
    });
  }
}

// A row of S while some tokens pass: 16 N elements in registers, or any number in memory (N = 0).
template <int N>
struct DeltaRow {
  F32x16 at[N];
  inline void begin(float* row, std::size_t) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) at[i] = load(row + 16 * i);
  }
  inline void end(float* row) const {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(row + 16 * i, at[i]);
  }
  // f(16 elements of S, their column, how many) for each stretch, in ascending order.
  template <class F>
  inline __attribute__((always_inline)) void each(F&& f) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) at[i] = f(at[i], static_cast<std::size_t>(16 * i), std::size_t{16});
  }
};
template <>
struct DeltaRow<0> {
  float* row;
  std::size_t size;
  inline void begin(float* from, std::size_t n) { row = from, size = n; }
  inline void end(float*) const {}
  template <class F>
  inline __attribute__((always_inline)) void each(F&& f) {
    for_columns(size, [&](std::size_t i, std::size_t n) {
      store_n(row + i, f(load_n(row + i, n), i, n), n);
    });
  }
};

// Rows d … d + R - 1 of S take in tokens [begin, end) of the item. Two rows hide each other's chain
// of additions.
template <int N, int R>
inline void delta_rows(
    const DeltaJob& job, const DeltaItem& item, std::size_t d, std::size_t begin, std::size_t end) {
  const std::size_t value = item.head * job.value_dim + d,
                    key = item.head / job.values_per_key * job.key_dim;
  float* const state = item.to + d * job.key_dim;
  DeltaRow<N> s[R];
#pragma GCC unroll 2
  for (std::size_t r = 0; r < R; ++r) s[r].begin(state + r * job.key_dim, job.key_dim);
  for (std::size_t t = item.token + begin; t < item.token + end; ++t) {
    const float* const k = job.k + t * job.k_stride + key;
    const float* const q = job.q + t * job.q_stride + key;
    const F32x16 decay = set1(job.decay[t * job.decay_stride + item.head]);
    const float beta = job.beta[t * job.beta_stride + item.head];
    float u[R];
#pragma GCC unroll 2
    for (std::size_t r = 0; r < R; ++r) {
      F32x16 sums[4] = {zero(), zero(), zero(), zero()};
      s[r].each([&](F32x16 x, std::size_t i, std::size_t n) {
        x = mul(x, decay);
        sums[i / 16 % 4] = fma(x, load_n(k + i, n), sums[i / 16 % 4]);
        return x;
      });
      u[r] = sum_of_lanes(sums);
    }
#pragma GCC unroll 2
    for (std::size_t r = 0; r < R; ++r) {
      const F32x16 delta = set1((job.v[t * job.v_stride + value + r] - u[r]) * beta);
      F32x16 sums[4] = {zero(), zero(), zero(), zero()};
      s[r].each([&](F32x16 x, std::size_t i, std::size_t n) {
        x = fma(delta, load_n(k + i, n), x);
        sums[i / 16 % 4] = fma(x, load_n(q + i, n), sums[i / 16 % 4]);
        return x;
      });
      if (job.out) job.out[t * job.out_stride + value + r] = sum_of_lanes(sums);
    }
  }
#pragma GCC unroll 2
  for (std::size_t r = 0; r < R; ++r) s[r].end(state + r * job.key_dim);
}

// Rows of S do not depend on each other: each stays in registers while a stretch of tokens, whose
// keys and queries fit in L1, passes.
void gated_delta(const DeltaJob& job, const DeltaItem& item) {
  constexpr std::size_t kTokens = 16;
  const std::size_t n_floats = std::size_t{job.value_dim} * job.key_dim;
  if (item.from != item.to) {
    for_columns(n_floats, [&](std::size_t i, std::size_t n) {
      store_n(item.to + i, item.from ? load_n(item.from + i, n) : zero(), n);
    });
  }
  for (std::size_t begin = 0; begin < item.n_new; begin += kTokens) {
    const std::size_t end = begin + kTokens < item.n_new ? begin + kTokens : item.n_new;
    std::size_t d = 0;
    if (job.key_dim == 128) {
      for (; d + 2 <= job.value_dim; d += 2) delta_rows<8, 2>(job, item, d, begin, end);
    }
    for (; d < job.value_dim; ++d) delta_rows<0, 1>(job, item, d, begin, end);
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
