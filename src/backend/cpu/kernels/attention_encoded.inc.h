// Attention over encoded rows. Keys: a product of q with each group's codes, then the group's scale
// and offset, as `linear` does it for quantized weights. Values: a key's probability takes in its
// scale of the group and meets the codes; offsets are summed once a group. Few queries decode codes
// within their products, many unpack the tile once: the same bits.

namespace kvasir::backend::cpu {
namespace {

// Times head_dim: rows of a tile take at most 80 bytes an element.
constexpr std::size_t kTileRoomFloats = 20;

struct EncodedScratch {
  AttentionScratch s;
  float *k_scales, *k_offsets, *v_scales, *v_offsets;  // [group][key] of the tile
  float* weights;                                      // [3][group][key]
  float* shares;                                       // [3][group]: of the offsets
  float* q_sums;                                       // [pair][group]
  std::uint32_t* words;                                // keys' codes, transposed
  std::uint8_t* room[2];  // for rows of keys, of values: codes, then scales, then offsets
  TileRows v_rows;
  bool is_fused;
  Upcoming next;
  std::size_t lines_at_once;
};

inline EncodedScratch lay_out_encoded(const AttentionJob& job, std::size_t n, float* at) {
  EncodedScratch e;
  e.s = lay_out(job, n, at);
  const std::size_t k = job.k_encoded.n_groups * kTileKeys, v = job.v_encoded.n_groups * kTileKeys;
  at = e.s.sum + n;
  e.k_scales = at, at += k;
  e.k_offsets = at, at += k;
  e.v_scales = at, at += v;
  e.v_offsets = at, at += v;
  e.weights = at, at += 3 * v;
  e.shares = at, at += 3 * job.v_encoded.n_groups;
  e.q_sums = at, at += n * job.k_encoded.n_groups;
  for (auto& room : e.room)
    room = reinterpret_cast<std::uint8_t*>(at), at += kTileRoomFloats * job.head_dim;
  e.lines_at_once = 0;
  e.is_fused = kFusesKvCodes && n <= kFewPairs;  // more share an unpacked tile
  // Packed keys are needed until they are unpacked, and values are unpacked after that.
  e.words = reinterpret_cast<std::uint32_t*>(e.is_fused ? e.s.keys : e.s.values);
  return e;
}

// What the tile at `begin` will read, to be asked for at each step of 32 elements of keys and
// values.
inline void expect_tile(const AttentionJob& job,
                        const AttentionItem& item,
                        std::uint32_t begin,
                        EncodedScratch& e) {
  e.next = Upcoming{};
  const std::size_t block = item.blocks[begin / job.block_tokens];
  const std::size_t row =
      (block * job.n_kv_heads + item.kv_head) * job.block_tokens + begin % job.block_tokens;
  const EncodedSide* const sides[] = {&job.k_encoded, &job.v_encoded};
  for (const EncodedSide* side : sides) {
    e.next.add(side->codes + row * side->codes_bytes, side->codes_bytes * kTileKeys);
    e.next.add(side->scales + row * side->scales_bytes, side->scales_bytes * kTileKeys);
    if (side->offsets)
      e.next.add(side->offsets + row * side->scales_bytes, side->scales_bytes * kTileKeys);
  }
  e.lines_at_once = e.next.n_lines() / (2 * job.head_dim / 32) + 1;
}

// Scales and offsets of one side for a tile; returns where its codes are.
inline TileRows load_side(const AttentionJob& job,
                          const AttentionItem& item,
                          const EncodedSide& side,
                          std::uint32_t tile,
                          KeyRange range,
                          std::uint8_t* room,
                          float* scales,
                          float* offsets) {
  std::uint8_t* const scales_room = room + side.codes_bytes * kTileKeys;
  std::uint8_t* const offsets_room = scales_room + side.scales_bytes * kTileKeys;
  load_tile_scales(
      side, find_rows(job, item, side.scales, side.scales_bytes, tile, range, scales_room), scales);
  if (side.offsets) {
    load_tile_scales(
        side, find_rows(job, item, side.offsets, side.scales_bytes, tile, range, offsets_room),
        offsets);
  }
  if (side.offset_is_zero_point) {
    for (std::size_t i = 0; i < side.n_groups * kTileKeys; i += 16)
      store(offsets + i, mul(load(offsets + i), load(scales + i)));
  }
  return find_rows(job, item, side.codes, side.codes_bytes, tile, range, room);
}

inline void unpack_keys(const AttentionJob& job, const EncodedScratch& e) {
  with_key_codes(job.k_encoded, e.words, [&](const auto& codes) {
    for (std::uint32_t begin = 0; begin < job.head_dim; begin += kStep) {
      const auto* const step = codes.step(begin);
      float* const to = e.s.keys + std::size_t{begin} * kTileKeys;
      unrolled<0, kStep>([&]<int I>() {
        for (std::uint32_t v = 0; v < 4; ++v)
          store(to + I * kTileKeys + 16 * v, codes.template at<I>(step, v));
      });
    }
  });
}

inline void unpack_values(const AttentionJob& job, const EncodedScratch& e) {
  for (std::size_t d = 0; d < job.head_dim; d += 32) {
    with_value_codes<2>(job.v_encoded, e.v_rows, d, [&]<class Values>(const Values& codes) {
      for (std::uint32_t key = 0; key < kTileKeys; ++key) {
        float* const to = e.s.values + key * e.s.v_stride + d;
        F32x16 both[2] = {codes.at(key, 0), codes.at(key, 1)};
        to_order<Values>(both);
        store(to, both[0]);
        store(to + 16, both[1]);
      }
    });
  }
}

// chains[parity][pair][v] += codes · q over one step of 32 elements from d on, from zero.
template <int Q, class Keys>
inline void score_step(const Keys& keys,
                       const float* q,
                       std::size_t q_stride,
                       std::uint32_t begin,
                       F32x16 (&sums)[Q][4]) {
  F32x16 chain[2][Q][4];
#pragma GCC unroll 2
  for (int parity = 0; parity < 2; ++parity) {
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) chain[parity][i][v] = zero();
    }
  }
  const auto* const step = keys.step(begin);
  unrolled<0, kStep>([&]<int I>() __attribute__((always_inline)) {
    F32x16 codes[4];
#pragma GCC unroll 4
    for (std::uint32_t v = 0; v < 4; ++v) codes[v] = keys.template at<I>(step, v);
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
      const F32x16 value = set1(q[static_cast<std::size_t>(i) * q_stride + begin + I]);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) chain[I % 2][i][v] = fma(codes[v], value, chain[I % 2][i][v]);
    }
  });
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sums[i][v] = add(sums[i][v], add(chain[0][i][v], chain[1][i][v]));
  }
}

// p[pair][key] = q · k for Q pairs.
template <int Q, class Keys>
inline void score_codes(const AttentionJob& job,
                        EncodedScratch& e,
                        std::size_t pair,
                        const Keys& keys) {
  const EncodedSide& side = job.k_encoded;
  for (std::uint32_t g = 0; g < side.n_groups; ++g) {
    F32x16 sums[Q][4];
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[i][v] = zero();
    }
    for (std::uint32_t begin = g * side.group; begin < (g + 1) * side.group; begin += kStep) {
      score_step<Q>(keys, e.s.q + pair * e.s.v_stride, e.s.v_stride, begin, sums);
      e.next.ask(e.lines_at_once);
    }
    for (int i = 0; i < Q; ++i) {
      const std::size_t at = pair + static_cast<std::size_t>(i);
      for (std::size_t v = 0; v < kTileKeys; v += 16) {
        float* const p = e.s.p + at * kTileKeys + v;
        F32x16 score = g == 0 ? zero() : load(p);
        score = fma(load(e.k_scales + g * kTileKeys + v), sums[i][v / 16], score);
        if (side.offsets) {
          score = fma(load(e.k_offsets + g * kTileKeys + v), set1(e.q_sums[at * side.n_groups + g]),
                      score);
        }
        store(p, score);
      }
    }
  }
}

template <int Q>
inline void score_encoded(const AttentionJob& job, EncodedScratch& e, std::size_t pair) {
  if constexpr (kFusesKvCodes) {
    if (e.is_fused) {
      return with_key_codes(job.k_encoded, e.words,
                            [&](const auto& codes) { score_codes<Q>(job, e, pair, codes); });
    }
  }
  score_codes<Q>(job, e, pair, TileKeyCodes{e.s.keys});
}

// Weights of the tile's codes for one pair, [group][key], and the offsets' share of the output.
inline void weigh_scales(const AttentionJob& job,
                         const EncodedScratch& e,
                         const float* p,
                         float* weights,
                         float* shares) {
  const EncodedSide& side = job.v_encoded;
  const bool rounds = rounds_operands(job);
  for (std::uint32_t g = 0; g < side.n_groups; ++g) {
    F32x16 share = zero();
    for (std::size_t j = g * kTileKeys; j < (g + 1) * kTileKeys; j += 16) {
      const F32x16 probability = load(p + j % kTileKeys);
      const F32x16 weight = mul(probability, load(e.v_scales + j));
      store(weights + j, rounds ? round_bf16(weight) : weight);
      if (side.offsets) {  // a key that this pair does not see may hold a NaN
        share =
            select_less(zero(), probability, fma(probability, load(e.v_offsets + j), share), share);
      }
    }
    shares[g] = sum_lanes(share);
  }
}

template <int Q>
struct PairWeights {
  const float* at[Q];      // [group][key] of each pair
  const float* shares[Q];  // [group]
  const float *keep, *gain;
};

// chain += weight · codes of one key: the first half of the N vectors in one group, the rest in the
// next where groups have 32 elements.
template <int Q, int N, class Values>
inline __attribute__((always_inline)) void weigh_codes_of_key(const Values& values,
                                                              const PairWeights<Q>& w,
                                                              std::size_t first,
                                                              std::size_t second,
                                                              std::uint32_t key,
                                                              F32x16 (&chain)[Q][N]) {
  if constexpr (Values::kPerLane == 4) {  // lanes 0 … 7 in the first
    F32x16 weights[Q];
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i)
      weights[i] = halves_of(set1(w.at[i][first + key]), set1(w.at[i][second + key]));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const F32x16 codes = values.at(key, n);
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) chain[i][n] = fma(codes, weights[i], chain[i][n]);
    }
    return;
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    const F32x16 codes = values.at(key, n);
    const std::size_t group_at = n < N / 2 ? first : second;
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i)
      chain[i][n] = fma(codes, set1(w.at[i][group_at + key]), chain[i][n]);
  }
}

// The tile's output of columns [d, d + 16 N), merged into the running output.
template <int Q, int N, class Values>
inline void weigh_codes(const AttentionJob& job,
                        EncodedScratch& e,
                        std::size_t pair,
                        KeyRange keys,
                        std::size_t d,
                        const PairWeights<Q>& w,
                        const Values& given) {
  Values values = given;
  if constexpr (Values::kPerLane == 4) values.pin();
  const std::size_t groups[2] = {d / job.v_encoded.group, (d + 8 * N) / job.v_encoded.group};
  const std::size_t first = groups[0] * kTileKeys, second = groups[1] * kTileKeys;
  F32x16 sums[Q][N];
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[i][n] = zero();
  }
  for (std::uint32_t step = 0; step < kTileKeys; step += kStep) {
    const std::uint32_t begin = keys.begin > step ? keys.begin : step;
    const std::uint32_t end = keys.end < step + kStep ? keys.end : step + kStep;
    if (begin >= end) continue;
    e.next.ask(e.lines_at_once);
    F32x16 even[Q][N], odd[Q][N];
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) even[i][n] = odd[i][n] = zero();
    }
    std::uint32_t key = begin;
    if (key % 2 == 1) weigh_codes_of_key<Q, N>(values, w, first, second, key++, odd);
    for (; key + 1 < end; key += 2) {
      weigh_codes_of_key<Q, N>(values, w, first, second, key, even);
      weigh_codes_of_key<Q, N>(values, w, first, second, key + 1, odd);
    }
    if (key < end) weigh_codes_of_key<Q, N>(values, w, first, second, key, even);
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[i][n] = add(sums[i][n], add(even[i][n], odd[i][n]));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i) {
    to_order<Values>(sums[i]);
    float* const out = e.s.out + (pair + static_cast<std::size_t>(i)) * e.s.v_stride + d;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      F32x16 sum = sums[i][n];
      if (job.v_encoded.offsets) sum = add(sum, set1(w.shares[i][groups[n < N / 2 ? 0 : 1]]));
      store(out + 16 * n, fma(load(out + 16 * n), set1(w.keep[i]), mul(sum, set1(w.gain[i]))));
    }
  }
}

template <int Q, int N>
inline void weigh_columns_encoded(const AttentionJob& job,
                                  EncodedScratch& e,
                                  std::size_t pair,
                                  KeyRange keys,
                                  std::size_t d,
                                  const PairWeights<Q>& w) {
  if constexpr (kFusesKvCodes) {
    if (e.is_fused) {
      return with_value_codes<N>(job.v_encoded, e.v_rows, d, [&](const auto& codes) {
        weigh_codes<Q, N>(job, e, pair, keys, d, w, codes);
      });
    }
  }
  weigh_codes<Q, N>(job, e, pair, keys, d, w, TileValueCodes<N>(e.s.values, e.s.v_stride, d));
}

// Q pairs from `pair` on, all with the same keys.
template <int Q>
inline void attend_encoded_pairs(const AttentionJob& job,
                                 EncodedScratch& e,
                                 std::size_t pair,
                                 KeyRange keys) {
  const std::size_t n_groups = job.v_encoded.n_groups;
  float keep[Q], gain[Q];
  PairWeights<Q> w;
  w.keep = keep, w.gain = gain;
  score_encoded<Q>(job, e, pair);
  for (int i = 0; i < Q; ++i) {
    const auto at = pair + static_cast<std::size_t>(i);
    float* const p = e.s.p + at * kTileKeys;
    float* const weights = e.weights + static_cast<std::size_t>(i) * n_groups * kTileKeys;
    float* const shares = e.shares + static_cast<std::size_t>(i) * n_groups;
    merge(e.s, at, soften(job, /*rounds=*/false, p, keys), keep + i, gain + i);
    weigh_scales(job, e, p, weights, shares);
    w.at[i] = weights, w.shares[i] = shares;
  }
  std::size_t d = 0;
  for (; d + 64 <= job.head_dim; d += 64) weigh_columns_encoded<Q, 4>(job, e, pair, keys, d, w);
  for (; d < job.head_dim; d += 32) weigh_columns_encoded<Q, 2>(job, e, pair, keys, d, w);
}

void attend_encoded(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  const std::size_t n = std::size_t{item.n_queries} * job.queries_per_kv;
  EncodedScratch e = lay_out_encoded(job, n, scratch);
  start(job, item, e.s);
  const EncodedSide &k = job.k_encoded, &v = job.v_encoded;
  for (std::size_t pair = 0; pair < n && k.offsets; ++pair)
    group_sums(e.s.q + pair * e.s.v_stride, k.group, k.n_groups, e.q_sums + pair * k.n_groups);
  walk_tiles(job, item, e.s, [&](std::uint32_t tile, KeyRange keys, std::uint32_t end) {
    const TileRows k_rows = load_side(job, item, k, tile, keys, e.room[0], e.k_scales, e.k_offsets);
    e.v_rows = load_side(job, item, v, tile, keys, e.room[1], e.v_scales, e.v_offsets);
    transpose_words(k_rows, k.codes_bytes / 4, e.words);
    e.next = Upcoming{};
    const std::uint32_t after = tile + kTileKeys;
    if (e.is_fused && job.block_tokens >= kTileKeys && after < end)
      expect_tile(job, item, after, e);
    if (!e.is_fused) {
      unpack_keys(job, e);
      unpack_values(job, e);
    }
    for_pairs(job, item, tile, [&](std::size_t pair, int n_pairs, KeyRange seen) {
      if (n_pairs == 3) attend_encoded_pairs<3>(job, e, pair, seen);
      if (n_pairs == 2) attend_encoded_pairs<2>(job, e, pair, seen);
      if (n_pairs == 1) attend_encoded_pairs<1>(job, e, pair, seen);
    });
    return true;
  });
}

void attention(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  item.is_encoded ? attend_encoded(job, item, scratch) : attend_exact(job, item, scratch);
}

}  // namespace
}  // namespace kvasir::backend::cpu
