// Attention of many queries on bf16 keys and values, bit for bit that of attention.inc.h, with
// (query, head) pairs in the lanes: blocks of 16 pairs go through tiles of 64 keys, whose values
// are packed once for all of them. A block goes through a few tiles, so that its running output
// stays in L1, before the next one does. What multiplies is an engine: tiles (attention_amx.inc.h)
// or products of bf16 pairs (attention_dots.inc.h). An engine has
//   kTilesPacked                     tiles that it can hold packed
//   place_queries(to, d, columns)    sixteen d of a block's queries, as its operand
//   pack_tile(a, tile, slot)         what it wants of a tile; false: a value is not finite
//   start_scores(a, tile), score_some<Run>(a, block, quarter) of each run of keys and quarter of
//   head_dim, finish_scores(a, block, scores): [key][lane] of the tile's keys
//   place_probabilities(p, key, …)   of four keys, as its operand
//   weigh(a, slot, merge)            product[d][lane] of each 16 of d, handed to merge(those 16,
//   half)
// and while a block's scores of one tile are worked on in lanes, tiles have those that come next.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kPairLanes = 16;
constexpr std::size_t kBlockFloats = std::size_t{16} * kPairLanes;  // of 16 rows of lanes
constexpr std::uint32_t kKeyRun = 16;                               // keys of one block of KV
constexpr std::uint32_t kKeyRuns = kTileKeys / kKeyRun;
constexpr std::uint32_t kWidestHead = 512;
constexpr std::size_t kOperandStride = 64;  // of rows of lanes

struct LaneState {  // of 16 pairs
  F32x16 largest, sum;
};

// n_blocks blocks of 16 pairs; what one item needs, in its scratch.
struct LaneAttention {
  const AttentionJob& job;
  const AttentionItem& item;
  KeyRange keys_seen;
  std::uint32_t n_pairs, n_blocks, n_steps;  // steps of 32 along head_dim
  std::uint8_t* q;                           // [block][step][16][lane] pairs of bf16
  float* scores;                             // [2][key][lane]: two in turn
  float* sums;                               // [16][lane]
  std::uint8_t* p;                           // [32 keys][16][lane] pairs of bf16
  std::uint8_t *keys, *values;               // the engine's, of a tile and of a few
  float* product;                            // [4][d][lane] of 16 d each
  float* state;                              // [block][largest, sum, first key, end][lane]
  float* out;                                // [block][d][lane]

  float* largest(std::uint32_t block) const { return state + block * 4 * kPairLanes; }
  float* sum(std::uint32_t block) const { return largest(block) + kPairLanes; }
  float* keys_begin(std::uint32_t block) const { return largest(block) + 2 * kPairLanes; }
  float* keys_end(std::uint32_t block) const { return largest(block) + 3 * kPairLanes; }
  std::uint8_t* values_of(std::uint32_t slot) const {
    return values + std::size_t{slot} * job.head_dim * kTileKeys * 2;
  }
  float* out_of(std::uint32_t block) const {
    return out + std::size_t{block} * job.head_dim * kPairLanes;
  }
};

inline std::uint8_t* as_bytes(float* p) { return reinterpret_cast<std::uint8_t*>(p); }

inline LaneAttention lay_out_lanes(const AttentionJob& job, const AttentionItem& item, float* at) {
  const std::uint32_t n = item.n_queries * job.queries_per_kv;
  LaneAttention a{.job = job,
                  .item = item,
                  .keys_seen = visible(job, item),
                  .n_pairs = n,
                  .n_blocks = (n + kPairLanes - 1) / kPairLanes,
                  .n_steps = job.head_dim / kStep,
                  .q = as_bytes(at),
                  .scores = nullptr,
                  .sums = nullptr,
                  .p = nullptr,
                  .keys = nullptr,
                  .values = nullptr,
                  .product = nullptr,
                  .state = nullptr,
                  .out = nullptr};
  at += a.n_blocks * a.n_steps * kBlockFloats;
  a.scores = at, at += 2 * kTileKeys * kPairLanes;
  a.sums = at, at += kBlockFloats;
  a.p = as_bytes(at), at += 2 * kBlockFloats;
  a.keys = as_bytes(at), at += std::size_t{job.head_dim} * kTileKeys / 2;
  a.values = as_bytes(at), at += kTilesTogether * std::size_t{job.head_dim} * kTileKeys / 2;
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
inline PairRows rows_of(const LaneAttention& a, std::uint32_t block, std::size_t stride) {
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

// bf16 of `low` in the low and of `high` in the high halves.
inline U32x16 join_bf16(F32x16 low, F32x16 high) {
  return or_u(bf16_bits(low), and_u(round_bits_to_bf16(bits(high), high), set1_u(0xffff0000u)));
}
// The same of numbers that are no denormals.
inline U32x16 join_normal_bf16(F32x16 low, F32x16 high, U32x16 interleave) {
  return _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
inline U32x16 interleaving_halves() {  // words 0, 16, 1, 17 …
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return or_u(low, shift_left<16>(add_u(low, set1_u(16))));
}

template <class Engine>
inline void start_block(const LaneAttention& a, std::uint32_t block) {
  const AttentionJob& job = a.job;
  const PairRows rows = rows_of(a, block, job.q_stride);
  const float* const q = job.q + a.item.token * job.q_stride +
                         std::size_t{a.item.kv_head} * job.queries_per_kv * job.head_dim;
  for (std::size_t d = 0; d < job.head_dim; d += 16) {
    U32x16 in[16], columns[16];
    for (std::uint32_t lane = 0; lane < kPairLanes; ++lane)
      in[lane] = lane < rows.n ? bits(load(q + rows.at[lane] + d)) : set1_u(0);
    transpose(in, columns);
    Engine::place_queries(a.q + block * a.n_steps * std::size_t{16} * kOperandStride, d, columns);
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

// ---- a tile ----

// The rows of a tile of one plane, in runs of 16; past the range: zeros.
struct TileRows {
  const std::uint8_t* at[kTileKeys];
};
inline TileRows rows_of_tile(const LaneAttention& a,
                             const std::uint8_t* plane,
                             std::uint32_t tile) {
  alignas(64) static constexpr std::uint8_t kZeros[2 * kWidestHead] = {};
  const KeyRange keys = a.keys_seen;
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

// The lanes' keys of a tile.
struct LaneKeys {
  U32x16 begin, end;
  __mmask16 any;
  bool all;  // every lane sees the whole tile
};
inline LaneKeys keys_of_lanes(const LaneAttention& a, std::uint32_t block, std::uint32_t tile) {
  const auto in_tile = [&](const float* at) {
    const U32x16 from = set1_u(tile), keys = _mm512_max_epu32(bits(load(at)), from);
    return _mm512_min_epu32(sub_u(keys, from), set1_u(kTileKeys));
  };
  const U32x16 begin = in_tile(a.keys_begin(block)), end = in_tile(a.keys_end(block));
  const __mmask16 all =
      _mm512_cmpeq_epi32_mask(begin, set1_u(0)) & _mm512_cmpeq_epi32_mask(end, set1_u(kTileKeys));
  return {begin, end, _mm512_cmplt_epu32_mask(begin, end), all == 0xffff};
}

// Scores → what exp takes: scaled, capped, -inf where not seen. The largest of each lane.
template <bool kAll>
inline F32x16 scale_scores(const LaneAttention& a, float* scores, const LaneKeys& keys) {
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

// A block of pairs by a tile of keys; none is left: tile kNoTile.
constexpr std::uint32_t kNoTile = ~0u;
struct PairsByKeys {
  std::uint32_t tile, block;
  float* scores;
};

// Scores → probabilities, each lane against its own maximum of the tile. Meanwhile the engine has
// the scores of what comes next.
template <class Engine>
inline LaneState soften(Engine& engine,
                        const LaneAttention& a,
                        float* scores,
                        const PairsByKeys& next,
                        const LaneKeys& keys) {
  const F32x16 largest =
      keys.all ? scale_scores<true>(a, scores, keys) : scale_scores<false>(a, scores, keys);
  const U32x16 interleave = interleaving_halves();
  const bool has_next = next.tile != kNoTile;
  if (has_next) engine.start_scores(a, next.tile);
  for (std::uint32_t j = 0; j < kKeyRun; j += 4) {
    F32x16 sums[4];
    unrolled<0, kKeyRuns>([&]<int Run>() __attribute__((always_inline)) {
      const std::uint32_t key = Run * kKeyRun + j;
      if (has_next) engine.template score_some<Run>(a, next.block, j / 4);
      F32x16 e[4];
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < 4; ++i) {
        e[i] = exp(sub(load(scores + std::size_t{key + i} * kPairLanes), largest));
        sums[i] = Run == 0 ? e[i] : add(sums[i], e[i]);
      }
      Engine::place_probabilities(a.p, key, e, interleave);
    });
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < 4; ++i) store(a.sums + (j + i) * kPairLanes, sums[i]);
  }
  F32x16 sums[16];
#pragma GCC unroll 16
  for (std::uint32_t i = 0; i < 16; ++i) sums[i] = load(a.sums + i * kPairLanes);
#pragma GCC unroll 4
  for (std::uint32_t half = 8; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < half; ++i) sums[i] = add(sums[i], sums[i + half]);
  }
  if (has_next) engine.finish_scores(a, next.block, next.scores);
  return {largest, sums[0]};
}

// ---- outputs ----

// What scales the running and the tile's output; lanes that see nothing of the tile stay.
struct LaneScales {
  F32x16 keep, gain;
};
inline LaneScales merge_block(const LaneAttention& a,
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

// The tile's output merged into the running one.
template <class Engine>
inline void weigh_block(Engine& engine,
                        const LaneAttention& a,
                        std::uint32_t block,
                        std::uint32_t slot,
                        const LaneScales& by,
                        __mmask16 any) {
  float* const out = a.out_of(block);
  engine.weigh(
      a, slot, [&](std::uint32_t part, std::uint32_t half) __attribute__((always_inline)) {
        const float* const product = a.product + part % 4 * kBlockFloats + half * kBlockFloats / 2;
        float* const to = out + part * kBlockFloats + half * kBlockFloats / 2;
#pragma GCC unroll 8
        for (std::size_t i = 0; i < kBlockFloats / 2; i += kPairLanes) {
          const F32x16 sum = fma(load(to + i), by.keep, mul(load(product + i), by.gain));
          _mm512_mask_storeu_ps(to + i, any, sum);
        }
      });
}

inline void finish_block(const LaneAttention& a, std::uint32_t block) {
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

// Whether an engine takes the item: whole runs of bf16 keys, and enough pairs to fill lanes.
inline bool suits_lanes(const AttentionJob& job, const AttentionItem& item, std::uint32_t fewest) {
  return !job.is_f32 && !job.is_f16 && !item.is_encoded && item.partials == nullptr &&
         job.head_dim % kStep == 0 && job.head_dim <= kWidestHead && job.block_tokens >= kKeyRun &&
         item.n_queries * job.queries_per_kv >= fewest;
}

// A block by tiles [first, end), packed into slots from 0 on.
template <class Engine>
inline void attend_block(Engine& engine,
                         const LaneAttention& a,
                         std::uint32_t block,
                         std::uint32_t first,
                         std::uint32_t end) {
  constexpr std::size_t kScores = std::size_t{kTileKeys} * kPairLanes;
  const auto from = [&](std::uint32_t tile, float* scores) -> PairsByKeys {
    while (tile < end && keys_of_lanes(a, block, tile).any == 0) tile += kTileKeys;
    return {tile < end ? tile : kNoTile, block, scores};
  };
  PairsByKeys at = from(first, a.scores);
  if (at.tile == kNoTile) return;
  engine.start_scores(a, at.tile);
  for (std::uint32_t quarter = 0; quarter < 4; ++quarter)
    unrolled<0, kKeyRuns>([&]<int Run>() { engine.template score_some<Run>(a, block, quarter); });
  engine.finish_scores(a, block, at.scores);
  while (at.tile != kNoTile) {
    const LaneKeys seen = keys_of_lanes(a, block, at.tile);
    const PairsByKeys next =
        from(at.tile + kTileKeys, a.scores + (at.scores == a.scores ? kScores : 0));
    const LaneState softened = soften(engine, a, at.scores, next, seen);
    weigh_block(engine, a, block, (at.tile - first) / kTileKeys,
                merge_block(a, block, softened, seen.any), seen.any);
    at = next;
  }
}

// False, and nothing done that counts, where a value is not finite.
template <class Engine>
inline bool attend_in_lanes(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  constexpr std::uint32_t kKeysPacked = Engine::kTilesPacked * kTileKeys;
  const LaneAttention a = lay_out_lanes(job, item, scratch);
  const KeyRange keys = a.keys_seen;
  Engine engine;
  for (std::uint32_t block = 0; block < a.n_blocks; ++block) start_block<Engine>(a, block);
  for (std::uint32_t first = keys.begin / kTileKeys * kTileKeys; first < keys.end;
       first += kKeysPacked) {
    const std::uint32_t left = keys.end - first,
                        end = first + (left < kKeysPacked ? left : kKeysPacked);
    for (std::uint32_t tile = first; tile < end; tile += kTileKeys)
      if (!engine.pack_tile(a, tile, (tile - first) / kTileKeys)) return false;
    for (std::uint32_t block = 0; block < a.n_blocks; ++block)
      attend_block(engine, a, block, first, end);
  }
  for (std::uint32_t block = 0; block < a.n_blocks; ++block) finish_block(a, block);
  return true;
}

}  // namespace
}  // namespace kvasir::backend::cpu
