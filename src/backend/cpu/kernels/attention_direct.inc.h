// A lone query on tiles of bf16 keys and values: operands go from the rows straight into the
// products, and no tile is unpacked into memory. The same steps and bits as attention.inc.h.

namespace kvasir::backend::cpu {
namespace {

constexpr int kDirectPairs = 4;

// One side of a tile, 64 rows behind each other, of which `seen` count. What is read after it, of
// the same size, is asked for on the way, line by line in the order of addresses: the tile's values
// while its keys are walked, the next tile's keys while its values are. Into L2: such a distance
// beside what is walked is more than L1 holds, and L1 has the fewer places for lines on their way.
struct DirectRows {
  const std::uint8_t* at;
  std::size_t row_bytes;
  const std::uint8_t* next;  // or null
  KeyRange seen;

  inline __attribute__((always_inline)) void ask(std::size_t offset) const {
    if (next) prefetch_beyond_l1(next + offset);
  }
};

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
        keys.ask(j * keys.row_bytes + 32 * begin + 64 * i);
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
    values.ask(ahead + 32 * n);
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

// The tile's output for Q pairs, merged into the running one. Values are walked a step of keys at a
// time, as they lie.
template <int Q>
inline void weigh_tile_directly(const AttentionJob& job,
                                const AttentionScratch& s,
                                const DirectRows& values,
                                std::size_t pair,
                                const float* keep,
                                const float* gain) {
  constexpr std::size_t kAcross = Q <= 3 ? 4 : 2;  // vectors of d that registers hold
  const float* const p = s.p + pair * kTileKeys;
  float* const sums = s.values;  // nothing is unpacked there
  for (std::size_t i = 0; i < Q * s.v_stride; i += 16) store(sums + i, zero());
  for (std::uint32_t step = 0; step < kTileKeys; step += kStep) {
    const KeyRange keys{values.seen.begin > step ? values.seen.begin : step,
                        values.seen.end < step + kStep ? values.seen.end : step + kStep};
    if (keys.begin >= keys.end) continue;
    std::size_t d = 0;
    for (; d + 16 * kAcross <= job.head_dim; d += 16 * kAcross)
      weigh_directly<Q, kAcross>(values, p, keys, d, sums, s.v_stride);
    for (; d < job.head_dim; d += 32) weigh_directly<Q, 2>(values, p, keys, d, sums, s.v_stride);
  }
  for (std::size_t i = 0; i < Q; ++i) {
    const F32x16 kept = set1(keep[i]), gained = set1(gain[i]);
    float* const out = s.out + (pair + i) * s.v_stride;
    for (std::size_t d = 0; d < job.head_dim; d += 32) {
      const float* const sum = sums + i * s.v_stride + d;
      const U32x16 even = load_u(sum), odd = load_u(sum + 16);
      const F32x16 first = from_bits(interleave_low(even, odd)),
                   second = from_bits(interleave_high(even, odd));
      store(out + d, fma(load(out + d), kept, mul(first, gained)));
      store(out + d + 16, fma(load(out + d + 16), kept, mul(second, gained)));
    }
  }
}

template <int Q>
inline void attend_pairs_directly(const AttentionJob& job,
                                  AttentionScratch& s,
                                  const DirectRows& keys,
                                  const DirectRows& values,
                                  std::size_t pair) {
  float keep[Q], gain[Q];
  score_directly<Q>(job, s, keys, pair);
  for (std::size_t i = 0; i < Q; ++i)
    merge(s, pair + i, soften(job, /*rounds=*/true, s.p + (pair + i) * kTileKeys, keys.seen),
          keep + i, gain + i);
  weigh_tile_directly<Q>(job, s, values, pair, keep, gain);
}

inline bool suits_direct(const AttentionJob& job, const AttentionItem& item) {
  return kFusesKvCodes && rounds_operands(job) && item.n_queries == 1 &&
         job.queries_per_kv <= kFewPairs && job.head_dim % kStep == 0 &&
         job.block_tokens % kTileKeys == 0;
}

// `end`: of the keys that the item walks.
inline void attend_tile_directly(const AttentionJob& job,
                                 const AttentionItem& item,
                                 AttentionScratch& s,
                                 std::uint32_t tile,
                                 KeyRange keys_of_item,
                                 std::uint32_t end) {
  const std::size_t n = job.queries_per_kv, row_bytes = std::size_t{job.head_dim} * 2;
  const std::uint32_t after = tile + kTileKeys;
  const KeyRange seen = inside(keys_of_item, tile);
  const DirectRows values{key_row(job, item, job.v, tile), row_bytes,
                          after < end ? key_row(job, item, job.k, after) : nullptr, seen};
  const DirectRows keys{key_row(job, item, job.k, tile), row_bytes, values.at, seen};
  for (std::size_t pair = 0; pair < n;) {
    const std::size_t left = n - pair, now = left > kDirectPairs ? (left + 1) / 2 : left;
    if (now == 4) attend_pairs_directly<4>(job, s, keys, values, pair);
    if (now == 3) attend_pairs_directly<3>(job, s, keys, values, pair);
    if (now == 2) attend_pairs_directly<2>(job, s, keys, values, pair);
    if (now == 1) attend_pairs_directly<1>(job, s, keys, values, pair);
    pair += now;
  }
}

// Keys and values of a tile unpacked for all pairs.
inline void attend_tile(const AttentionJob& job,
                        const AttentionItem& item,
                        AttentionScratch& s,
                        std::uint32_t tile,
                        KeyRange keys,
                        std::uint32_t end) {
  const std::size_t n_pairs = std::size_t{item.n_queries} * job.queries_per_kv;
  Upcoming next;
  const std::uint32_t after = tile + kTileKeys;
  if (n_pairs <= kFewPairs && job.block_tokens >= kTileKeys && after < end) {
    const std::size_t tile_bytes = kTileKeys * job.head_dim * (job.is_f32 ? 4 : 2);
    next.add(key_row(job, item, job.k, after), tile_bytes);
    next.add(key_row(job, item, job.v, after), tile_bytes);
  }
  pack_keys(job, item, tile, keys, s.keys, &next);
  pack_values(job, item, tile, keys, s, next);
  for_pairs(job, item, tile,
            [&](std::size_t pair, int n, KeyRange seen) { attend_pairs(job, s, pair, n, seen); });
}

void attend_exact(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  const std::size_t n_pairs = std::size_t{item.n_queries} * job.queries_per_kv;
  AttentionScratch s = lay_out(job, n_pairs, scratch);
  start(job, item, s);
  const bool directly = suits_direct(job, item);
  for (std::size_t i = 0; i < kTileKeys * s.v_stride && !directly; i += 16)
    store(s.values + i, zero());
  const KeyRange keys = visible(job, item);
  std::uint32_t begin = keys.begin / kTileKeys * kTileKeys, end = keys.end;
  float* partial = item.partials;
  if (partial) start_part(item, s, n_pairs, &begin, &end);
  for (std::uint32_t tile = begin; tile < end; tile += kTileKeys) {
    if (directly) {
      attend_tile_directly(job, item, s, tile, keys, end);
    } else {
      attend_tile(job, item, s, tile, keys, end);
    }
    if (!partial) continue;
    keep_tile(s, n_pairs, partial);
    partial += attention_partial_floats(job.head_dim, n_pairs);
  }
  if (!partial) finish(job, item, s);
}

}  // namespace
}  // namespace kvasir::backend::cpu
