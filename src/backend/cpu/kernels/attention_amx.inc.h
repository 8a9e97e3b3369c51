// Attention on tiles, bit for bit that of attention.inc.h: for many queries on bf16 keys and
// values. Both products have lanes of 16 (query, head) pairs and rows of keys, then of d: keys are
// operand A as they lie in memory, queries B, packed once; values are A transposed, a tile of keys
// at a time; probabilities B, made in place of the scores, down the lanes.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kPairLanes = 16;
constexpr std::size_t kBlockFloats = std::size_t{16} * kPairLanes;  // of 16 rows of lanes

struct LaneState {  // of 16 pairs
  F32x16 largest, sum;
};

// n_blocks blocks of 16 pairs; what one item needs, in its scratch.
struct AmxAttention {
  const AttentionJob& job;
  const AttentionItem& item;
  std::uint32_t n_pairs, n_blocks, n_steps;  // steps of 32 along head_dim
  std::uint8_t* q;                           // [block][step][pair of d][lane][2] bf16
  float* scores;                             // [key][lane]
  std::uint8_t* p;                           // [step][pair of keys][lane][2] bf16
  std::uint8_t* values;                      // [16 d][step][d][32 keys] bf16
  float* product;                            // [d][lane] of 16 d
  float* state;                              // [block][largest, sum][lane]
  float* out;                                // [block][d][lane]

  float* largest(std::uint32_t block) const { return state + block * 2 * kPairLanes; }
  float* sum(std::uint32_t block) const { return largest(block) + kPairLanes; }
  float* out_of(std::uint32_t block) const {
    return out + std::size_t{block} * job.head_dim * kPairLanes;
  }
  std::uint32_t query_of(std::uint32_t pair) const { return pair / job.queries_per_kv; }
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
                 .p = nullptr,
                 .values = nullptr,
                 .product = nullptr,
                 .state = nullptr,
                 .out = nullptr};
  at += a.n_blocks * a.n_steps * kBlockFloats;
  a.scores = at, at += kTileKeys * kPairLanes;
  a.p = as_bytes(at), at += 2 * kBlockFloats;
  a.values = as_bytes(at), at += std::size_t{job.head_dim} * kTileKeys / 2;
  a.product = at, at += kBlockFloats;
  a.state = at, at += a.n_blocks * 2 * kPairLanes;
  a.out = at;
  return a;
}

// Sixteen rows of up to 16 pairs' elements from d on; pairs past the last: zeros.
inline void load_pairs(const AmxAttention& a,
                       std::uint32_t block,
                       std::size_t d,
                       U32x16 (&rows)[16]) {
  for (std::uint32_t lane = 0; lane < kPairLanes; ++lane) {
    const std::uint32_t pair = block * kPairLanes + lane, heads = a.job.queries_per_kv;
    if (pair >= a.n_pairs) {
      rows[lane] = set1_u(0);
      continue;
    }
    const std::size_t head = std::size_t{a.item.kv_head} * heads + pair % heads;
    const float* const q =
        a.job.q + (a.item.token + pair / heads) * a.job.q_stride + head * a.job.head_dim + d;
    rows[lane] = bits(load(q));
  }
}

// bf16 of `even` in the low and of `odd` in the high halves.
inline U32x16 join_bf16(F32x16 even, F32x16 odd) {
  return or_u(bf16_bits(even), and_u(round_bits_to_bf16(bits(odd), odd), set1_u(0xffff0000u)));
}

inline void start_amx(const AmxAttention& a) {
  for (std::uint32_t block = 0; block < a.n_blocks; ++block) {
    for (std::size_t d = 0; d < a.job.head_dim; d += 16) {
      U32x16 rows[16], columns[16];
      load_pairs(a, block, d, rows);
      transpose(rows, columns);
      std::uint8_t* const to = a.q + (block * a.n_steps * std::size_t{16} + d / 2) * kTileStride;
      for (std::size_t i = 0; i < 8; ++i)
        _mm512_storeu_si512(to + i * kTileStride,
                            join_bf16(from_bits(columns[2 * i]), from_bits(columns[2 * i + 1])));
      for (std::size_t i = 0; i < 16; ++i) store(a.out_of(block) + (d + i) * kPairLanes, zero());
    }
    store(a.largest(block), set1(-__builtin_inff()));
    store(a.sum(block), zero());
  }
}

// Keys 2 i and 2 i + 1 side by side for 16 d, zeros for keys out of range.
inline U32x16 load_value_pair(const AmxAttention& a,
                              KeyRange keys,
                              std::uint32_t position,
                              std::size_t d) {
  const auto half = [&](std::uint32_t at) {
    if (at < keys.begin || at >= keys.end) return _mm256_setzero_si256();
    const std::uint8_t* const row = key_row(a.job, a.item, a.job.v, at) + 2 * d;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
  };
  return or_u(_mm512_cvtepu16_epi32(half(position)),
              shift_left<16>(_mm512_cvtepu16_epi32(half(position + 1))));
}

// The tile's values, transposed. False where one is not finite: nothing times it is nothing.
inline bool pack_values_amx(const AmxAttention& a, KeyRange keys, std::uint32_t tile) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 wild = 0;
  for (std::size_t d = 0; d < a.job.head_dim; d += 16) {
    for (std::uint32_t step = 0; step < 2; ++step) {
      U32x16 pairs[16], rows[16];
      for (std::uint32_t i = 0; i < 16; ++i) {
        pairs[i] = load_value_pair(a, keys, tile + step * kStep + 2 * i, d);
        wild |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs[i], exponent), exponent);
      }
      transpose(pairs, rows);
      std::uint8_t* const to = a.values + (d / 16 * 2 + step) * 16 * kTileStride;
      for (std::size_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kTileStride, rows[i]);
    }
  }
  return wild == 0;
}

// scores[key][lane]; keys that no query of the item sees are left out.
template <class Tiles>
inline void score_block(
    Tiles& tiles, const AmxAttention& a, std::uint32_t block, KeyRange keys, std::uint32_t tile) {
  for (std::uint32_t j = 0; j < kTileKeys; j += 16) {
    if (tile + j >= keys.end || tile + j + 16 <= keys.begin) continue;
    const std::uint8_t* k = key_row(a.job, a.item, a.job.k, tile + j);
    const std::uint8_t* q = a.q + std::size_t{block} * a.n_steps * 16 * kTileStride;
    tiles.template clear<kSum00>();
    for (std::uint32_t s = 0; s < a.n_steps; ++s, k += 64, q += 16 * kTileStride) {
      tiles.template load<kRows0>(k, std::size_t{a.job.head_dim} * 2);
      tiles.template load<kOutputs0>(q, kTileStride);
      tiles.template multiply_bf16<kSum00, kRows0, kOutputs0>();
    }
    tiles.template store<kSum00>(a.scores + std::size_t{j} * kPairLanes, kTileStride);
  }
}

// The lanes' keys of a tile.
struct LaneKeys {
  U32x16 begin, end;
  __mmask16 any;
};
inline LaneKeys keys_of_lanes(const AmxAttention& a, std::uint32_t block, std::uint32_t tile) {
  std::uint32_t begin[kPairLanes], end[kPairLanes];
  for (std::uint32_t lane = 0; lane < kPairLanes; ++lane) {
    const std::uint32_t pair = block * kPairLanes + lane;
    KeyRange keys{0, 0};
    if (pair < a.n_pairs)
      keys = inside(visible(a.job, a.item, a.item.position + a.query_of(pair)), tile);
    begin[lane] = keys.begin, end[lane] = keys.end;
  }
  const U32x16 b = load_u(begin), e = load_u(end);
  return {b, e, _mm512_cmplt_epu32_mask(b, e)};
}

// Scores → probabilities (as operand B), each lane against its own maximum of the tile.
inline LaneState soften_block(const AmxAttention& a, const LaneKeys& keys) {
  const F32x16 factor = set1(a.job.scale), cap = set1(a.job.softcap);
  F32x16 largest = set1(-__builtin_inff());
  for (std::uint32_t j = 0; j < kTileKeys; ++j) {
    const U32x16 at = set1_u(j);
    const __mmask16 seen =
        _mm512_cmple_epu32_mask(keys.begin, at) & _mm512_cmplt_epu32_mask(at, keys.end);
    F32x16 s = set1(-__builtin_inff());
    if (seen != 0) {
      const F32x16 scaled = mul(load(a.scores + std::size_t{j} * kPairLanes), factor);
      const F32x16 score = a.job.softcap > 0.0f ? mul(cap, tanh(div(scaled, cap))) : scaled;
      s = _mm512_mask_mov_ps(s, seen, score);
    }
    store(a.scores + std::size_t{j} * kPairLanes, s);
    largest = max(largest, s);
  }
  F32x16 sums[16];
  for (std::uint32_t j = 0; j < kTileKeys; j += 2) {
    const F32x16 even = exp(sub(load(a.scores + std::size_t{j} * kPairLanes), largest)),
                 odd = exp(sub(load(a.scores + std::size_t{j + 1} * kPairLanes), largest));
    sums[j % 16] = j < 16 ? even : add(sums[j % 16], even);
    sums[j % 16 + 1] = j < 16 ? odd : add(sums[j % 16 + 1], odd);
    _mm512_storeu_si512(a.p + j / 2 * kTileStride, join_bf16(even, odd));
  }
  for (std::uint32_t half = 8; half > 0; half /= 2)
    for (std::uint32_t i = 0; i < half; ++i) sums[i] = add(sums[i], sums[i + half]);
  return {largest, sums[0]};
}

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

template <class Tiles>
inline void weigh_block(
    Tiles& tiles, const AmxAttention& a, std::uint32_t block, const LaneScales& by, __mmask16 any) {
  for (std::size_t d = 0; d < a.job.head_dim; d += 16) {
    tiles.template clear<kSum00>();
    for (std::size_t step = 0; step < 2; ++step) {
      tiles.template load<kRows0>(a.values + (d / 16 * 2 + step) * 16 * kTileStride, kTileStride);
      tiles.template load<kOutputs0>(a.p + step * 16 * kTileStride, kTileStride);
      tiles.template multiply_bf16<kSum00, kRows0, kOutputs0>();
    }
    tiles.template store<kSum00>(a.product, kTileStride);
    float* const out = a.out_of(block) + d * kPairLanes;
    for (std::size_t i = 0; i < 16; ++i) {
      const F32x16 product = load(a.product + i * kPairLanes);
      _mm512_mask_storeu_ps(out + i * kPairLanes, any,
                            fma(load(out + i * kPairLanes), by.keep, mul(product, by.gain)));
    }
  }
}

inline void finish_block(const AmxAttention& a, std::uint32_t block) {
  F32x16 sum = load(a.sum(block)), keep = set1(1.0f);
  const std::uint32_t heads = a.job.queries_per_kv, left = a.n_pairs - block * kPairLanes,
                      n = left < kPairLanes ? left : kPairLanes;
  if (a.job.sinks) {
    float sinks[kPairLanes] = {};
    for (std::uint32_t lane = 0; lane < n; ++lane)
      sinks[lane] = a.job.sinks[a.item.kv_head * heads + (block * kPairLanes + lane) % heads];
    const F32x16 sink = load(sinks), before = load(a.largest(block)), now = max(before, sink);
    keep = exp(sub(before, now));
    sum = fma(sum, keep, exp(sub(sink, now)));
  }
  for (std::size_t d = 0; d < a.job.head_dim; d += 16) {
    U32x16 columns[16], rows[16];
    for (std::size_t i = 0; i < 16; ++i) {
      const F32x16 o = load(a.out_of(block) + (d + i) * kPairLanes);
      columns[i] = bits(div(mul(o, keep), sum));
    }
    transpose(columns, rows);
    for (std::uint32_t lane = 0; lane < n; ++lane) {
      const std::uint32_t pair = block * kPairLanes + lane;
      const std::size_t head = std::size_t{a.item.kv_head} * heads + pair % heads;
      store(
          a.job.out + (a.item.token + pair / heads) * a.job.out_stride + head * a.job.head_dim + d,
          from_bits(rows[lane]));
    }
  }
}

// Whether tiles take the item: whole tiles of bf16 keys, and enough pairs to fill lanes.
inline bool suits_tiles(const AttentionJob& job, const AttentionItem& item, std::uint32_t fewest) {
  return !job.is_f32 && !job.is_f16 && !item.is_encoded && item.partials == nullptr &&
         job.head_dim % kStep == 0 && job.block_tokens >= 16 &&
         item.n_queries * job.queries_per_kv >= fewest;
}

// False, and nothing done that counts, where a value is not finite.
template <class Tiles>
inline bool attend_on_tiles(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  TileConfig config;
  for (int tile = kSum00; tile <= kOutputs1; ++tile) config.set(tile, 16, 64);
  Tiles tiles(config);
  const AmxAttention a = lay_out_amx(job, item, scratch);
  start_amx(a);
  const KeyRange keys = visible(job, item);
  for (std::uint32_t tile = keys.begin / kTileKeys * kTileKeys; tile < keys.end;
       tile += kTileKeys) {
    if (!pack_values_amx(a, keys, tile)) return false;
    for (std::uint32_t block = 0; block < a.n_blocks; ++block) {
      const LaneKeys seen = keys_of_lanes(a, block, tile);
      if (seen.any == 0) continue;
      score_block(tiles, a, block, keys, tile);
      const LaneScales by = merge_block(a, block, soften_block(a, seen), seen.any);
      weigh_block(tiles, a, block, by, seen.any);
    }
  }
  for (std::uint32_t block = 0; block < a.n_blocks; ++block) finish_block(a, block);
  return true;
}

}  // namespace
}  // namespace kvasir::backend::cpu
