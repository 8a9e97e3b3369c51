// Norms, rotary positions, activations, roundings: rows of f32, sixteen columns at a time.

namespace kvasir::backend::cpu {
namespace {

void round_to_bf16(const float* x, std::size_t n, float* out) {
  for_columns(
      n, [&](std::size_t i, std::size_t m) { store_n(out + i, round_bf16(load_n(x + i, m)), m); });
}

void store_bf16(const float* x, std::size_t n, std::uint16_t* out) {
  for_columns(n, [&](std::size_t i, std::size_t m) {
    store_u16_n(out + i, bf16_bits(load_n(x + i, m)), m);
  });
}

// Columns i, i + 64, … go to accumulator i / 16 % 4; (0 + 1) + (2 + 3), then halves of the lanes.
float sum_of_squares(const float* x, std::size_t n) {
  F32x16 sums[4] = {zero(), zero(), zero(), zero()};
  std::size_t whole = 0;  // of four columns of vectors, their sums in registers
  for (; whole + 64 <= n; whole += 64) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const F32x16 v = load(x + whole + 16 * j);
      sums[j] = fma(v, v, sums[j]);
    }
  }
  for (std::size_t j = 0; j < 4 && whole + 16 * j < n; ++j) {
    const std::size_t left = n - whole - 16 * j;
    const F32x16 v = load_n(x + whole + 16 * j, left < 16 ? left : 16);
    sums[j] = fma(v, v, sums[j]);
  }
  return sum_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

float sum_of_columns(const float* x, std::size_t n) {  // in the order of sum_of_squares
  F32x16 sums[4] = {zero(), zero(), zero(), zero()};
  for_columns(n, [&](std::size_t i, std::size_t m) {
    sums[i / 16 % 4] = add(sums[i / 16 % 4], load_n(x + i, m));
  });
  return sum_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

void rms_norm(const NormJob& job, std::uint32_t begin, std::uint32_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    for (std::size_t column = 0; column < job.n_cols; column += job.group) {
      const float* const x = job.x + row * job.x_stride + column;
      float* const out = job.out + row * job.out_stride + column;
      const float mean = sum_of_squares(x, job.group) / static_cast<float>(job.group);
      const F32x16 inverse = set1(1.0f / sqrt1(mean + job.eps));
      for_columns(job.group, [&](std::size_t i, std::size_t n) {
        const F32x16 v = mul(load_n(x + i, n), inverse);
        store_n(out + i, job.weight ? mul(v, load_n(job.weight + i, n)) : v, n);
      });
    }
  }
}

// The centred row is kept in the output until its variance is known.
void layer_norm(const NormJob& job, std::uint32_t begin, std::uint32_t end) {
  const std::size_t n_cols = job.n_cols;
  for (std::size_t row = begin; row < end; ++row) {
    const float* const x = job.x + row * job.x_stride;
    float* const out = job.out + row * job.out_stride;
    const F32x16 mean = set1(sum_of_columns(x, n_cols) / static_cast<float>(n_cols));
    for_columns(n_cols, [&](std::size_t i, std::size_t n) {
      store_n(out + i, sub(load_n(x + i, n), mean), n);
    });
    const float variance = sum_of_squares(out, n_cols) / static_cast<float>(n_cols);
    const F32x16 inverse = set1(1.0f / sqrt1(variance + job.eps));
    for_columns(n_cols, [&](std::size_t i, std::size_t n) {
      const F32x16 y = mul(mul(load_n(out + i, n), inverse), load_n(job.weight + i, n));
      store_n(out + i, job.bias ? add(y, load_n(job.bias + i, n)) : y, n);
    });
  }
}

void rope_interleaved(const RopeJob& job, float* head, const float* cos, const float* sin) {
  for (std::size_t i = 0; i < job.n_pairs; ++i) {
    const float p = head[2 * i], q = head[2 * i + 1];
    head[2 * i] = fma1(-q, sin[i], p * cos[i]);
    head[2 * i + 1] = fma1(p, sin[i], q * cos[i]);
  }
}

void rope(const RopeJob& job, std::uint32_t begin, std::uint32_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    const float* const cos = job.cos + std::size_t{job.positions[row]} * job.n_pairs;
    const float* const sin = job.sin + std::size_t{job.positions[row]} * job.n_pairs;
    for (std::size_t column = 0; column < job.n_cols; column += job.head_dim) {
      float* const head = job.x + row * job.x_stride + column;
      if (job.interleaved) {
        rope_interleaved(job, head, cos, sin);
        continue;
      }
      for_columns(job.n_pairs, [&](std::size_t i, std::size_t n) {
        const F32x16 p = load_n(head + i, n), q = load_n(head + job.n_pairs + i, n);
        const F32x16 c = load_n(cos + i, n), s = load_n(sin + i, n);
        store_n(head + i, fma(sub(zero(), q), s, mul(p, c)), n);
        store_n(head + job.n_pairs + i, fma(p, s, mul(q, c)), n);
      });
    }
  }
}

template <class F>
inline void for_rows(const RowsJob& job, std::uint32_t begin, std::uint32_t end, F&& f) {
  for (std::size_t row = begin; row < end; ++row) {
    const float* const x = job.x + row * job.x_stride;
    const float* const y = job.y + row * job.y_stride;
    float* const out = job.out + row * job.out_stride;
    for_columns(job.n_cols, [&](std::size_t i, std::size_t n) {
      store_n(out + i, f(load_n(x + i, n), y + i, n), n);
    });
  }
}

inline F32x16 identity(F32x16 x) { return x; }

using Function = F32x16 (*)(F32x16);
template <Function kActivation>
void act_mul(const RowsJob& job, std::uint32_t begin, std::uint32_t end) {
  for_rows(job, begin, end, [](F32x16 x, const float* y, std::size_t n) {
    return mul(kActivation(x), load_n(y, n));
  });
}

void clamped_swiglu(const RowsJob& job, std::uint32_t begin, std::uint32_t end) {
  const F32x16 one = set1(1.0f), high = set1(job.alpha), low = set1(0.0f - job.alpha);
  for_rows(job, begin, end, [&](F32x16 gate, const float* y, std::size_t n) {
    const F32x16 g = min(high, gate), u = max(low, min(high, load_n(y, n)));
    return mul(div(g, add(one, exp(mul(set1(-1.702f), g)))), add(u, one));
  });
}

void gate_rows(const RowsJob& job, std::uint32_t begin, std::uint32_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    const F32x16 gate = sigmoid(set1(job.y[row * job.y_stride]));
    for_columns(job.n_cols, [&](std::size_t i, std::size_t n) {
      store_n(job.out + row * job.out_stride + i,
              mul(load_n(job.x + row * job.x_stride + i, n), gate), n);
    });
  }
}

void add_scaled(const RowsJob& job, std::uint32_t begin, std::uint32_t end) {
  const F32x16 alpha = set1(job.alpha);
  for_rows(job, begin, end, [&](F32x16 x, const float* y, std::size_t n) {
    return add(x, mul(load_n(y, n), alpha));
  });
}

void scale(const RowsJob& job, std::uint32_t begin, std::uint32_t end) {
  const F32x16 alpha = set1(job.alpha), cap = set1(job.softcap);
  for_rows(job, begin, end, [&](F32x16 x, const float*, std::size_t) {
    const F32x16 scaled = mul(x, alpha);
    return job.softcap > 0.0f ? mul(cap, tanh(div(scaled, cap))) : scaled;
  });
}

void exp_row(const float* x, std::size_t n, float* out) {
  for_columns(n, [&](std::size_t i, std::size_t m) { store_n(out + i, exp(load_n(x + i, m)), m); });
}

}  // namespace
}  // namespace kvasir::backend::cpu
