// What attention_direct.inc.h multiplies by where the CPU has products of bf16 pairs
// (linear_dots.inc.h says how those add). Scores: a lane is one chain of one of eight keys, the
// even chain's beside the odd one's. Values: a lane is a column, operands are two keys of a chain.

namespace kvasir::backend::cpu {
namespace {

// Into L1 (on Zen 5 an eighth to a fifth faster than into L2, on one thread).
inline __attribute__((always_inline)) void ask_next(const DirectRows& rows, std::size_t offset) {
  if (rows.next) prefetch(rows.next + offset);
}

// 32 values of bf16 that two vectors hold as floats.
inline U32x16 words_of(F32x16 first, F32x16 second) {
  return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

// ---- scores ----

// Words of four elements e0 … e3 in a quad: e2, e0, then e3, e1: a pair of the even and one of the
// odd chain, the earlier element high.

// Of eight rows of eight quads: columns, in that order of words.
inline void transpose_to_quads(const U32x16 (&r)[8], U32x16 (&out)[8]) {
  const auto words = [](std::uint64_t quad) {  // of quads 0, 2, 4, 6 + quad, of both rows in turn
    constexpr std::uint64_t kOrder = 0x0001000300000002, kSecond = 0x0020002000200020,
                            kQuad = 0x0004000400040004;
    const auto at = [&](std::uint64_t i, std::uint64_t row) {
      return static_cast<long long>(kOrder + (2 * i + quad) * kQuad + row * kSecond);
    };
    return _mm512_setr_epi64(at(0, 0), at(0, 1), at(1, 0), at(1, 1), at(2, 0), at(2, 1), at(3, 0),
                             at(3, 1));
  };
  const __m512i even = words(0), odd = words(1);
  U32x16 t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_permutex2var_epi16(r[2 * i], even, r[2 * i + 1]);
    t[2 * i + 1] = _mm512_permutex2var_epi16(r[2 * i], odd, r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {  // quads 0 and 4, 1 and 5, 2 and 6, 3 and 7 of four rows
    u[4 * i] = _mm512_shuffle_i64x2(t[4 * i], t[4 * i + 2], 0x88);
    u[4 * i + 1] = _mm512_shuffle_i64x2(t[4 * i + 1], t[4 * i + 3], 0x88);
    u[4 * i + 2] = _mm512_shuffle_i64x2(t[4 * i], t[4 * i + 2], 0xdd);
    u[4 * i + 3] = _mm512_shuffle_i64x2(t[4 * i + 1], t[4 * i + 3], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm512_shuffle_i64x2(u[i], u[4 + i], 0x88);
    out[4 + i] = _mm512_shuffle_i64x2(u[i], u[4 + i], 0xdd);
  }
}

// Heads as bf16 in the order of quads, where no keys are unpacked.
inline std::uint8_t* heads_of(const AttentionScratch& s) {
  return reinterpret_cast<std::uint8_t*>(s.keys);
}
inline void place_heads(const AttentionJob& job, const AttentionScratch& s) {
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11));
  for (std::size_t i = 0; i < job.queries_per_kv; ++i) {
    for (std::size_t d = 0; d < job.head_dim; d += kStep) {
      const float* const q = s.q + i * s.v_stride + d;
      _mm512_storeu_si512(heads_of(s) + (i * job.head_dim + d) * 2,
                          _mm512_shuffle_epi8(words_of(load(q), load(q + 16)), order));
    }
  }
}

// p[pair][key] = q · k for Q pairs; sixteen keys of which none is seen are left out.
template <int Q>
inline void score_directly(const AttentionJob& job,
                           const AttentionScratch& s,
                           const DirectRows& keys,
                           std::size_t pair) {
  const std::size_t head_bytes = std::size_t{job.head_dim} * 2;
  const std::uint8_t* const heads = heads_of(s) + pair * head_bytes;
  for (std::size_t j = keys.seen.begin / 16 * 16; j < keys.seen.end; j += 16) {
    F32x16 sums[Q];
#pragma GCC unroll 4
    for (F32x16& sum : sums) sum = zero();
    for (std::size_t begin = 0; begin < head_bytes; begin += 2 * kStep) {
      F32x16 chains[2][Q];
#pragma GCC unroll 2
      for (std::size_t eight = 0; eight < 2; ++eight) {
        U32x16 rows[8], quads[8];
#pragma GCC unroll 8
        for (std::size_t i = 0; i < 8; ++i) {
          rows[i] = load_u(keys.at + (j + 8 * eight + i) * keys.row_bytes + begin);
          ask_next(keys, j * keys.row_bytes + 16 * begin + 64 * (8 * eight + i));
        }
        transpose_to_quads(rows, quads);
#pragma GCC unroll 4
        for (F32x16& chain : chains[eight]) chain = zero();
#pragma GCC unroll 8
        for (std::size_t c = 0; c < 8; ++c) {
#pragma GCC unroll 4
          for (std::size_t i = 0; i < Q; ++i) {
            long long quad = 0;
            __builtin_memcpy(&quad, heads + i * head_bytes + begin + 8 * c, 8);
            chains[eight][i] = multiply_add(quads[c], _mm512_set1_epi64(quad), chains[eight][i]);
          }
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) {
        const U32x16 first = bits(chains[0][i]), second = bits(chains[1][i]);
        sums[i] = add(sums[i], add(from_bits(even_lanes(first, second)),
                                   from_bits(odd_lanes(first, second))));
      }
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Q; ++i) store(s.p + (pair + i) * kTileKeys + j, sums[i]);
  }
}

// ---- values ----

// A step of keys: where their rows are, zeros in the place of those that are not seen; and Q pairs'
// weights, eight of the even chain, then of the odd one.
template <int Q>
struct WeightedStep {
  const std::uint8_t* rows[kStep];
  std::uint32_t weights[Q][kStep / 2];
};

// sums[pair][d] += p · v of a step, columns [d, d + 32 N), of each 32: of each eight four, then the
// others. Asks for as many lines from `ahead` on.
template <int Q, int N>
inline void weigh_columns(const WeightedStep<Q>& step,
                          const DirectRows& values,
                          std::size_t d,
                          std::size_t ahead,
                          float* sums,
                          std::size_t sums_stride) {
  F32x16 chains[2][Q][2 * N];
  for (auto& chain : chains) {
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 8
      for (F32x16& c : chain[i]) c = zero();
    }
  }
  for (std::size_t k = 0; k < kStep / 4; ++k) {
#pragma GCC unroll 2
    for (std::size_t parity = 0; parity < 2; ++parity) {
      const std::uint8_t *const early = step.rows[4 * k + parity] + 2 * d,
                                *const late = step.rows[4 * k + 2 + parity] + 2 * d;
      U32x16 weights[Q];
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) weights[i] = set1_u(step.weights[i][8 * parity + k]);
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        ask_next(values, ahead), ask_next(values, ahead + 64), ahead += 128;
        const U32x16 first = load_u(early + 64 * n), second = load_u(late + 64 * n);
        const U32x16 low = _mm512_unpacklo_epi16(second, first),
                     high = _mm512_unpackhi_epi16(second, first);
#pragma GCC unroll 4
        for (int i = 0; i < Q; ++i) {
          F32x16* const c = chains[parity][i] + 2 * n;
          c[0] = multiply_add(low, weights[i], c[0]);
          c[1] = multiply_add(high, weights[i], c[1]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < Q; ++i) {
#pragma GCC unroll 8
    for (std::size_t n = 0; n < 2 * N; ++n) {
      float* const sum = sums + i * sums_stride + d + 16 * n;
      store(sum, add(load(sum), add(chains[0][i][n], chains[1][i][n])));
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
  constexpr std::size_t kAcross = Q == 1 ? 4 : Q == 2 ? 2 : 1;  // 32 columns that registers hold
  const std::size_t first = keys.begin / kStep * kStep;
  auto* const zeros = reinterpret_cast<std::uint8_t*>(s.values + (Q + 1) * s.v_stride);
  const bool is_whole = keys.end - keys.begin == kStep;
  for (std::size_t i = 0; i < values.row_bytes && !is_whole; i += 64)
    _mm512_storeu_si512(zeros + i, _mm512_setzero_si512());
  WeightedStep<Q> step;
  for (std::size_t i = 0; i < kStep; ++i) {
    const bool is_seen = first + i >= keys.begin && first + i < keys.end;
    step.rows[i] = is_seen ? values.at + (first + i) * values.row_bytes : zeros;
  }
  for (std::size_t i = 0; i < Q; ++i) {
    const float* const weights = p + i * kTileKeys + first;
    _mm512_storeu_si512(
        step.weights[i],
        _mm512_permutexvar_epi16(pairs_of_a_step(), words_of(load(weights), load(weights + 16))));
  }
  std::size_t d = 0, ahead = first * values.row_bytes;
  for (; d + 32 * kAcross <= job.head_dim; d += 32 * kAcross, ahead += kStep * 64 * kAcross)
    weigh_columns<Q, kAcross>(step, values, d, ahead, sums, s.v_stride);
  for (; d < job.head_dim; d += 32, ahead += kStep * 64)
    weigh_columns<Q, 1>(step, values, d, ahead, sums, s.v_stride);
}

// Of 32 d of sums.
inline F32x16 first_columns(const float* sums) {
  const __m512i order = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  return from_bits(_mm512_permutex2var_epi64(load_u(sums), order, load_u(sums + 16)));
}
inline F32x16 last_columns(const float* sums) {
  const __m512i order = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  return from_bits(_mm512_permutex2var_epi64(load_u(sums), order, load_u(sums + 16)));
}

}  // namespace
}  // namespace kvasir::backend::cpu
