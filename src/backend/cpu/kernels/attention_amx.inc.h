// Attention on tiles, bit for bit that of attention.inc.h: for many queries on bf16 keys and
// values. Both products have lanes of 16 (query, head) pairs and rows of keys, then of d: keys are
// operand A as they lie in memory, queries B, packed once; values are A transposed, a tile of keys
// at a time for all pairs of the item; probabilities B, made in place of the scores, down the
// lanes. While one block of pairs is worked on in lanes, the scores of the next are on the tiles.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kPairLanes = 16;
constexpr std::size_t kBlockFloats = std::size_t{16} * kPairLanes;  // of 16 rows of lanes
constexpr std::uint32_t kKeyRun = 16;                               // keys of one block of KV
constexpr std::uint32_t kKeyRuns = kTileKeys / kKeyRun;
constexpr std::uint32_t kWidestTileHead = 512;

struct LaneState {  // of 16 pairs
  F32x16 largest, sum;
};

// n_blocks blocks of 16 pairs; what one item needs, in its scratch.
struct AmxAttention {
  const AttentionJob& job;
  const AttentionItem& item;
  std::uint32_t n_pairs, n_blocks, n_steps;  // steps of 32 along head_dim
  std::uint8_t* q;                           // [block][step][pair of d][lane][2] bf16
  float* scores;                             // [2][key][lane]: of two blocks in turn
  float* sums;                               // [16][lane]
  std::uint8_t* p;                           // [step][pair of keys][lane][2] bf16
  std::uint8_t* values;                      // [16 d][step][d][32 keys] bf16
  float* product;                            // [4][d][lane] of 16 d each
  float* state;                              // [block][largest, sum, first key, end][lane]
  float* out;                                // [block][d][lane]

  float* largest(std::uint32_t block) const { return state + block * 4 * kPairLanes; }
  float* sum(std::uint32_t block) const { return largest(block) + kPairLanes; }
  float* keys_begin(std::uint32_t block) const { return largest(block) + 2 * kPairLanes; }
  float* keys_end(std::uint32_t block) const { return largest(block) + 3 * kPairLanes; }
  float* scores_of(std::uint32_t block) const {
    return scores + block % 2 * std::size_t{kTileKeys} * kPairLanes;
  }
  float* out_of(std::uint32_t block) const {
    return out + std::size_t{block} * job.head_dim * kPairLanes;
  }
};

inline std::uint8_t* as_bytes(float* p) { return reinterpret_cast<std::uint8_t*>(p); }

inline AmxAttention lay_out_amx(const AttentionJob& job, const AttentionItem& item, float* at) {
  const std::uint32_t n = item.n_queries * job.queries_per_kv;
  AmxAttention a{.job = job,
                 .item = item,
                 .n_pairs = n,
                 .n_blocks = (n + kPairLanes - 1) / kPairLanes,
                 .n_steps = job.head_dim / kStep,
                 .q = as_bytes(at),
                 .scores = nullptr,
                 .sums = nullptr,
                 .p = nullptr,
                 .values = nullptr,
                 .product = nullptr,
                 .state = nullptr,
                 .out = nullptr};
  at += a.n_blocks * a.n_steps * kBlockFloats;
  a.scores = at, at += 2 * kTileKeys * kPairLanes;
  a.sums = at, at += kBlockFloats;
  a.p = as_bytes(at), at += 2 * kBlockFloats;
  a.values = as_bytes(at), at += std::size_t{job.head_dim} * kTileKeys / 2;
  a.product = at, at += 4 * kBlockFloats;
  a.state = at, at += a.n_blocks * 4 * kPairLanes;
  a.out = at;
  return a;
}

// Where the 16 pairs of a block have their rows; past the last: null.
struct PairRows {
  std::size_t at[kPairLanes];  // elements from the item's first query
  std::uint32_t query[kPairLanes];
  std::uint32_t n;
};
inline PairRows rows_of(const AmxAttention& a, std::uint32_t block, std::size_t stride) {
  const std::uint32_t heads = a.job.queries_per_kv, first = block * kPairLanes,
                      left = a.n_pairs - first;
  PairRows rows{.at = {}, .query = {}, .n = left < kPairLanes ? left : kPairLanes};
  std::uint32_t query = first / heads, head = first % heads;
  for (std::uint32_t lane = 0; lane < rows.n; ++lane) {
    rows.query[lane] = query;
    rows.at[lane] = query * stride + head * std::size_t{a.job.head_dim};
    if (++head == heads) head = 0, ++query;
  }
  return rows;
}

// bf16 of `even` in the low and of `odd` in the high halves.
inline U32x16 join_bf16(F32x16 even, F32x16 odd) {
  return or_u(bf16_bits(even), and_u(round_bits_to_bf16(bits(odd), odd), set1_u(0xffff0000u)));
}
// The same of numbers that are no denormals.
inline U32x16 join_normal_bf16(F32x16 even, F32x16 odd, U32x16 interleave) {
  return _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}
inline U32x16 interleaving_halves() {  // words 0, 16, 1, 17 …
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return or_u(low, shift_left<16>(add_u(low, set1_u(16))));
}

inline void start_block(const AmxAttention& a, std::uint32_t block) {
  const AttentionJob& job = a.job;
  const PairRows rows = rows_of(a, block, job.q_stride);
  const float* const q = job.q + a.item.token * job.q_stride +
                         std::size_t{a.item.kv_head} * job.queries_per_kv * job.head_dim;
  for (std::size_t d = 0; d < job.head_dim; d += 16) {
    U32x16 in[16], columns[16];
    for (std::uint32_t lane = 0; lane < kPairLanes; ++lane)
      in[lane] = lane < rows.n ? bits(load(q + rows.at[lane] + d)) : set1_u(0);
    transpose(in, columns);
    std::uint8_t* const to = a.q + (block * a.n_steps * std::size_t{16} + d / 2) * kTileStride;
    for (std::size_t i = 0; i < 8; ++i)
      _mm512_storeu_si512(to + i * kTileStride,
                          join_bf16(from_bits(columns[2 * i]), from_bits(columns[2 * i + 1])));
    for (std::size_t i = 0; i < 16; ++i) store(a.out_of(block) + (d + i) * kPairLanes, zero());
  }
  std::uint32_t begin[kPairLanes] = {}, end[kPairLanes] = {};
  for (std::uint32_t lane = 0; lane < rows.n; ++lane) {
    const KeyRange keys = visible(job, a.item, a.item.position + rows.query[lane]);
    begin[lane] = keys.begin, end[lane] = keys.end;
  }
  store(a.keys_begin(block), from_bits(load_u(begin)));
  store(a.keys_end(block), from_bits(load_u(end)));
  store(a.largest(block), set1(-__builtin_inff()));
  store(a.sum(block), zero());
}

// ---- values ----

// The rows of a tile of one plane, in runs of 16; past the range: zeros.
struct TileRows {
  const std::uint8_t* at[kTileKeys];
};
inline TileRows rows_of_tile(const AmxAttention& a,
                             const std::uint8_t* plane,
                             KeyRange keys,
                             std::uint32_t tile) {
  alignas(64) static constexpr std::uint8_t kZeros[2 * kWidestTileHead] = {};
  TileRows rows;
  for (std::uint32_t j = 0; j < kTileKeys; j += kKeyRun) {
    const bool is_there = tile + j < keys.end && tile + j + kKeyRun > keys.begin;
    const std::uint8_t* const run = is_there ? key_row(a.job, a.item, plane, tile + j) : nullptr;
    for (std::uint32_t i = 0; i < kKeyRun; ++i) {
      const std::uint32_t position = tile + j + i;
      const bool counts = position >= keys.begin && position < keys.end;
      rows.at[j + i] = counts ? run + i * std::size_t{a.job.head_dim} * 2 : kZeros;
    }
  }
  return rows;
}

// 32 keys' values of 32 d, transposed: keys 2 i and 2 i + 1 side by side for four d of each eight,
// then for the other four. `largest`: of the magnitudes' bits.
template <bool kHigh>
inline void transpose_values(const std::uint8_t* const* rows,
                             std::size_t d,
                             std::uint8_t* to,
                             __m512i& largest) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  U32x16 pairs[16], columns[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512i first = load_u(rows[2 * i] + 2 * d), second = load_u(rows[2 * i + 1] + 2 * d);
    pairs[i] = kHigh ? _mm512_unpackhi_epi16(first, second) : _mm512_unpacklo_epi16(first, second);
    largest = _mm512_max_epu16(largest, _mm512_and_si512(pairs[i], magnitude));
  }
  transpose(pairs, columns);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t at = i / 4 * 8 + i % 4 + (kHigh ? 4 : 0);  // of the 32 d
    _mm512_storeu_si512(to + at / 16 * 2 * 16 * kTileStride + at % 16 * kTileStride, columns[i]);
  }
}

// The tile's values, transposed. False where one is not finite: nothing times it is nothing.
inline bool pack_values_amx(const AmxAttention& a, KeyRange keys, std::uint32_t tile) {
  const TileRows rows = rows_of_tile(a, a.job.v, keys, tile);
  __m512i largest = _mm512_setzero_si512();
  for (std::size_t d = 0; d < a.job.head_dim; d += kStep) {
    for (std::size_t step = 0; step < 2; ++step) {
      std::uint8_t* const to = a.values + (d / 16 * 2 + step) * 16 * kTileStride;
      transpose_values<false>(rows.at + step * kStep, d, to, largest);
      transpose_values<true>(rows.at + step * kStep, d, to, largest);
    }
  }
  return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0;
}

// ---- scores ----

// The lanes' keys of a tile.
struct LaneKeys {
  U32x16 begin, end;
  __mmask16 any;
  bool all;  // every lane sees the whole tile
};
inline LaneKeys keys_of_lanes(const AmxAttention& a, std::uint32_t block, std::uint32_t tile) {
  const auto in_tile = [&](const float* at) {
    const U32x16 from = set1_u(tile), keys = _mm512_max_epu32(bits(load(at)), from);
    return _mm512_min_epu32(sub_u(keys, from), set1_u(kTileKeys));
  };
  const U32x16 begin = in_tile(a.keys_begin(block)), end = in_tile(a.keys_end(block));
  const __mmask16 all =
      _mm512_cmpeq_epi32_mask(begin, set1_u(0)) & _mm512_cmpeq_epi32_mask(end, set1_u(kTileKeys));
  return {begin, end, _mm512_cmplt_epu32_mask(begin, end), all == 0xffff};
}

enum AttentionTile { kScores0, kScores1, kScores2, kScores3, kQueries0, kQueries1, kKeys0, kKeys1 };

// The keys of a tile as they lie in memory, in runs that an item's query sees something of.
struct KeyRuns {
  const std::uint8_t* at[kKeyRuns];  // or null
};
inline KeyRuns runs_of_tile(const AmxAttention& a, KeyRange keys, std::uint32_t tile) {
  KeyRuns runs;
  for (std::uint32_t i = 0; i < kKeyRuns; ++i) {
    const std::uint32_t first = tile + i * kKeyRun;
    const bool is_there = first < keys.end && first + kKeyRun > keys.begin;
    runs.at[i] = is_there ? key_row(a.job, a.item, a.job.k, first) : nullptr;
  }
  return runs;
}

// scores[key][lane]; runs that no query of the item sees are left out.
template <class Tiles>
inline void score_block(Tiles& tiles,
                        const AmxAttention& a,
                        std::uint32_t block,
                        const KeyRuns& runs) {
  const std::size_t stride = std::size_t{a.job.head_dim} * 2;
  const std::uint8_t* q = a.q + std::size_t{block} * a.n_steps * 16 * kTileStride;
  float* const scores = a.scores_of(block);
  unrolled<0, kKeyRuns>([&]<int J>() { tiles.template clear<kScores0 + J>(); });
  const auto step = [&]<int kQueries>(std::size_t s) __attribute__((always_inline)) {
    tiles.template load<kQueries>(q + s * 16 * kTileStride, kTileStride);
    unrolled<0, kKeyRuns>([&]<int J>() __attribute__((always_inline)) {
      if (!runs.at[J]) return;
      tiles.template load<kKeys0 + J % 2>(runs.at[J] + s * 64, stride);
      tiles.template multiply_bf16<kScores0 + J, kKeys0 + J % 2, kQueries>();
    });
  };
  for (std::size_t s = 0; s < a.n_steps; s += 2) {
    step.template operator()<kQueries0>(s);
    if (s + 1 < a.n_steps) step.template operator()<kQueries1>(s + 1);
  }
  unrolled<0, kKeyRuns>([&]<int J>() __attribute__((always_inline)) {
    if (runs.at[J])
      tiles.template store<kScores0 + J>(scores + std::size_t{J} * kBlockFloats, kTileStride);
  });
}

// Scores → what exp takes: scaled, capped, -inf where not seen. The largest of each lane.
template <bool kAll>
inline F32x16 scale_scores(const AmxAttention& a, float* scores, const LaneKeys& keys) {
  const F32x16 factor = set1(a.job.scale), cap = set1(a.job.softcap);
  const bool caps = a.job.softcap > 0.0f;
  F32x16 largest[4];
  for (F32x16& l : largest) l = set1(-__builtin_inff());
  for (std::uint32_t j = 0; j < kTileKeys; j += 4) {
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < 4; ++i) {
      float* const at = scores + std::size_t{j + i} * kPairLanes;
      F32x16 s = mul(load(at), factor);
      if (caps) s = mul(cap, tanh(div(s, cap)));
      if constexpr (!kAll) {
        const U32x16 key = set1_u(j + i);
        const __mmask16 seen =
            _mm512_cmple_epu32_mask(keys.begin, key) & _mm512_cmplt_epu32_mask(key, keys.end);
        s = _mm512_mask_mov_ps(set1(-__builtin_inff()), seen, s);
      }
      store(at, s);
      largest[i] = max(largest[i], s);
    }
  }
  return max(max(largest[0], largest[1]), max(largest[2], largest[3]));
}

// Scores → probabilities (as operand B), each lane against its own maximum of the tile.
inline LaneState soften_block(const AmxAttention& a, std::uint32_t block, const LaneKeys& keys) {
  float* const scores = a.scores_of(block);
  const F32x16 largest =
      keys.all ? scale_scores<true>(a, scores, keys) : scale_scores<false>(a, scores, keys);
  const U32x16 interleave = interleaving_halves();
  for (std::uint32_t j = 0; j < 16; j += 2) {
    F32x16 sums[2] = {zero(), zero()};
#pragma GCC unroll 4
    for (std::uint32_t run = 0; run < kKeyRuns; ++run) {
      const float* const at = scores + std::size_t{run * kKeyRun + j} * kPairLanes;
      const F32x16 even = exp(sub(load(at), largest)),
                   odd = exp(sub(load(at + kPairLanes), largest));
      sums[0] = run == 0 ? even : add(sums[0], even);
      sums[1] = run == 0 ? odd : add(sums[1], odd);
      _mm512_storeu_si512(a.p + (run * kKeyRun + j) / 2 * kTileStride,
                          join_normal_bf16(even, odd, interleave));
    }
    store(a.sums + j * kPairLanes, sums[0]);
    store(a.sums + (j + 1) * kPairLanes, sums[1]);
  }
  F32x16 sums[16];
#pragma GCC unroll 16
  for (std::uint32_t i = 0; i < 16; ++i) sums[i] = load(a.sums + i * kPairLanes);
#pragma GCC unroll 4
  for (std::uint32_t half = 8; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < half; ++i) sums[i] = add(sums[i], sums[i + half]);
  }
  return {largest, sums[0]};
}

// ---- outputs ----

// What scales the running and the tile's output; lanes that see nothing of the tile stay.
struct LaneScales {
  F32x16 keep, gain;
};
inline LaneScales merge_block(const AmxAttention& a,
                              std::uint32_t block,
                              const LaneState& tile,
                              __mmask16 any) {
  const F32x16 before = load(a.largest(block)), now = max(before, tile.largest);
  const LaneScales by{exp(sub(before, now)), exp(sub(tile.largest, now))};
  const F32x16 sum = fma(load(a.sum(block)), by.keep, mul(tile.sum, by.gain));
  _mm512_mask_storeu_ps(a.sum(block), any, sum);
  _mm512_mask_storeu_ps(a.largest(block), any, now);
  return by;
}

// 64 d at a time, so that no product waits for the one before it.
template <class Tiles>
inline void weigh_block(
    Tiles& tiles, const AmxAttention& a, std::uint32_t block, const LaneScales& by, __mmask16 any) {
  tiles.template load<kQueries0>(a.p, kTileStride);
  tiles.template load<kQueries1>(a.p + 16 * kTileStride, kTileStride);
  const std::uint32_t n_parts = a.job.head_dim / 16;
  for (std::uint32_t first = 0; first < n_parts; first += 4) {
    const int n = static_cast<int>(n_parts - first < 4 ? n_parts - first : 4);
    const std::uint8_t* const values = a.values + std::size_t{first} * 2 * 16 * kTileStride;
    const auto multiply = [&]<int kStepOfKeys, int J>() __attribute__((always_inline)) {
      if (J >= n) return;
      tiles.template load<kKeys0 + J % 2>(values + (2 * J + kStepOfKeys) * 16 * kTileStride,
                                          kTileStride);
      tiles.template multiply_bf16<kScores0 + J, kKeys0 + J % 2, kQueries0 + kStepOfKeys>();
    };
    unrolled<0, 4>([&]<int J>() __attribute__((always_inline)) {
      tiles.template clear<kScores0 + J>();
      multiply.template operator()<0, J>();
    });
    unrolled<0, 4>([&]<int J>()
                       __attribute__((always_inline)) { multiply.template operator()<1, J>(); });
    unrolled<0, 4>([&]<int J>() __attribute__((always_inline)) {
      if (J < n) tiles.template store<kScores0 + J>(a.product + J * kBlockFloats, kTileStride);
    });
    float* const out = a.out_of(block) + std::size_t{first} * kBlockFloats;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n) * kBlockFloats; i += kPairLanes) {
      const F32x16 product = load(a.product + i);
      _mm512_mask_storeu_ps(out + i, any, fma(load(out + i), by.keep, mul(product, by.gain)));
    }
  }
}

inline void finish_block(const AmxAttention& a, std::uint32_t block) {
  const AttentionJob& job = a.job;
  const PairRows rows = rows_of(a, block, job.out_stride);
  F32x16 sum = load(a.sum(block)), keep = set1(1.0f);
  const std::uint32_t heads = job.queries_per_kv;
  if (job.sinks) {
    float sinks[kPairLanes] = {};
    for (std::uint32_t lane = 0; lane < rows.n; ++lane)
      sinks[lane] = job.sinks[a.item.kv_head * heads + (block * kPairLanes + lane) % heads];
    const F32x16 sink = load(sinks), before = load(a.largest(block)), now = max(before, sink);
    keep = exp(sub(before, now));
    sum = fma(sum, keep, exp(sub(sink, now)));
  }
  float* const out =
      job.out + a.item.token * job.out_stride + std::size_t{a.item.kv_head} * heads * job.head_dim;
  for (std::size_t d = 0; d < job.head_dim; d += 16) {
    U32x16 columns[16], in_rows[16];
    for (std::size_t i = 0; i < 16; ++i) {
      const F32x16 o = load(a.out_of(block) + (d + i) * kPairLanes);
      columns[i] = bits(div(mul(o, keep), sum));
    }
    transpose(columns, in_rows);
    for (std::uint32_t lane = 0; lane < rows.n; ++lane)
      store(out + rows.at[lane] + d, from_bits(in_rows[lane]));
  }
}

// Whether tiles take the item: whole tiles of bf16 keys, and enough pairs to fill lanes.
inline bool suits_tiles(const AttentionJob& job, const AttentionItem& item, std::uint32_t fewest) {
  return !job.is_f32 && !job.is_f16 && !item.is_encoded && item.partials == nullptr &&
         job.head_dim % kStep == 0 && job.head_dim <= kWidestTileHead &&
         job.block_tokens >= kKeyRun && item.n_queries * job.queries_per_kv >= fewest;
}

// A tile of keys for the blocks that see any of it.
template <class Tiles>
inline void attend_tile_amx(Tiles& tiles,
                            const AmxAttention& a,
                            KeyRange keys,
                            std::uint32_t tile) {
  const KeyRuns runs = runs_of_tile(a, keys, tile);
  const auto next_seen = [&](std::uint32_t block) {
    while (block < a.n_blocks && keys_of_lanes(a, block, tile).any == 0) ++block;
    return block;
  };
  std::uint32_t block = next_seen(0);
  if (block < a.n_blocks) score_block(tiles, a, block, runs);
  while (block < a.n_blocks) {
    const LaneKeys seen = keys_of_lanes(a, block, tile);
    const std::uint32_t next = next_seen(block + 1);
    const LaneState softened = soften_block(a, block, seen);
    if (next < a.n_blocks) score_block(tiles, a, next, runs);
    weigh_block(tiles, a, block, merge_block(a, block, softened, seen.any), seen.any);
    block = next;
  }
}

// False, and nothing done that counts, where a value is not finite.
template <class Tiles>
inline bool attend_on_tiles(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  TileConfig config;
  for (int tile = kScores0; tile <= kKeys1; ++tile) config.set(tile, 16, 64);
  Tiles tiles(config);
  const AmxAttention a = lay_out_amx(job, item, scratch);
  for (std::uint32_t block = 0; block < a.n_blocks; ++block) start_block(a, block);
  const KeyRange keys = visible(job, item);
  for (std::uint32_t tile = keys.begin / kTileKeys * kTileKeys; tile < keys.end;
       tile += kTileKeys) {
    if (!pack_values_amx(a, keys, tile)) return false;
    attend_tile_amx(tiles, a, keys, tile);
  }
  for (std::uint32_t block = 0; block < a.n_blocks; ++block) finish_block(a, block);
  return true;
}

}  // namespace
}  // namespace kvasir::backend::cpu
