// What attention_direct.inc.h multiplies by: keys transposed, an element of d at a time, and values
// as they lie, as f32 lanes.

namespace kvasir::backend::cpu {
namespace {

// Into L2: such a distance beside what is walked is more than L1 holds, and L1 has the fewer places
// for lines on their way.
inline __attribute__((always_inline)) void ask_next(const DirectRows& rows, std::size_t offset) {
  if (rows.next) prefetch_beyond_l1(rows.next + offset);
}

// p[pair][key] = q · k for Q pairs; sixteen keys of which none is seen are left out.
template <int Q>
inline void score_directly(const AttentionJob& job,
                           const AttentionScratch& s,
                           const DirectRows& keys,
                           std::size_t pair) {
  const float* const q = s.q + pair * s.v_stride;
  const U32x16 odd_mask = set1_u(0xffff0000u);
  for (std::size_t j = keys.seen.begin / 16 * 16; j < keys.seen.end; j += 16) {
    F32x16 sums[Q];
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) sums[i] = zero();
    for (std::size_t begin = 0; begin < job.head_dim; begin += kStep) {
      U32x16 rows[16], pairs[16];
      for (std::size_t i = 0; i < 16; ++i) {
        rows[i] = load_u(keys.at + (j + i) * keys.row_bytes + 2 * begin);
        ask_next(keys, j * keys.row_bytes + 32 * begin + 64 * i);
      }
      transpose(rows, pairs);
      F32x16 even[Q], odd[Q];
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) even[i] = odd[i] = zero();
#pragma GCC unroll 16
      for (std::size_t d = 0; d < 16; ++d) {
        const F32x16 first = from_bits(shift_left<16>(pairs[d])),
                     second = from_bits(and_u(pairs[d], odd_mask));
#pragma GCC unroll 4
        for (int i = 0; i < Q; ++i) {
          const float* const x = q + static_cast<std::size_t>(i) * s.v_stride + begin + 2 * d;
          even[i] = fma(first, set1(x[0]), even[i]);
          odd[i] = fma(second, set1(x[1]), odd[i]);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) sums[i] = add(sums[i], add(even[i], odd[i]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i)
      store(s.p + (pair + static_cast<std::size_t>(i)) * kTileKeys + j, sums[i]);
  }
}

// chain += p · v of one key, 16 N of d, Q pairs, of each 32 d the even ones, then the odd; asks for
// as many lines from `ahead` on.
template <int Q, int N>
inline __attribute__((always_inline)) void weigh_row(const DirectRows& values,
                                                     const float* p,
                                                     std::size_t key,
                                                     std::size_t d,
                                                     std::size_t ahead,
                                                     F32x16 (&chain)[Q][N]) {
  const auto* const row =
      reinterpret_cast<const std::uint16_t*>(values.at + key * values.row_bytes + 2 * d);
#pragma GCC unroll 4
  for (std::size_t n = 0; n < N; n += 2) {
    ask_next(values, ahead + 32 * n);
    const U32x16 both = load_u(row + 16 * n);
    const F32x16 even = from_bits(shift_left<16>(both)),
                 odd = from_bits(and_u(both, set1_u(0xffff0000u)));
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Q; ++i) {
      const F32x16 weight = set1(p[i * kTileKeys + key]);
      chain[i][n] = fma(even, weight, chain[i][n]);
      chain[i][n + 1] = fma(odd, weight, chain[i][n + 1]);
    }
  }
}

// sums[pair][d] += p · v of keys [begin, end), all of one step, columns [d, d + 16 N), Q pairs; d
// in the order above.
template <int Q, int N>
inline void weigh_directly(const DirectRows& values,
                           const float* p,
                           KeyRange keys,
                           std::size_t d,
                           float* sums,
                           std::size_t sums_stride) {
  F32x16 even[Q][N], odd[Q][N];
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) even[i][n] = odd[i][n] = zero();
  }
  const std::size_t step = keys.begin / kStep * kStep;
  const auto ahead = [&](std::size_t key) {
    return step * values.row_bytes + kStep * 2 * d + (key - step) * 32 * N;
  };
  std::uint32_t key = keys.begin;
  if (key % 2 == 1) weigh_row<Q, N>(values, p, key, d, ahead(key), odd), ++key;
  for (; key + 1 < keys.end; key += 2) {
    weigh_row<Q, N>(values, p, key, d, ahead(key), even);
    weigh_row<Q, N>(values, p, key + 1, d, ahead(key + 1), odd);
  }
  if (key < keys.end) weigh_row<Q, N>(values, p, key, d, ahead(key), even);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) {
      float* const sum = sums + i * sums_stride + d + 16 * n;
      store(sum, add(load(sum), add(even[i][n], odd[i][n])));
    }
  }
}

// sums[pair] += p · v of keys, which are seen and all of one step.
template <int Q>
inline void weigh_step(const AttentionJob& job,
                       const AttentionScratch& s,
                       const DirectRows& values,
                       const float* p,
                       KeyRange keys,
                       float* sums) {
  constexpr std::size_t kAcross = Q <= 3 ? 4 : 2;  // vectors of d that registers hold
  std::size_t d = 0;
  for (; d + 16 * kAcross <= job.head_dim; d += 16 * kAcross)
    weigh_directly<Q, kAcross>(values, p, keys, d, sums, s.v_stride);
  for (; d < job.head_dim; d += 32) weigh_directly<Q, 2>(values, p, keys, d, sums, s.v_stride);
}

// Of 32 d of sums.
inline F32x16 first_columns(const float* sums) {
  return from_bits(interleave_low(load_u(sums), load_u(sums + 16)));
}
inline F32x16 last_columns(const float* sums) {
  return from_bits(interleave_high(load_u(sums), load_u(sums + 16)));
}

inline void place_heads(const AttentionJob&, const AttentionScratch&) {}  // as they are

}  // namespace
}  // namespace kvasir::backend::cpu
