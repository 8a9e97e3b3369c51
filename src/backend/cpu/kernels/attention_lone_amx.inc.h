// A lone query's attention on tiles of bf16 keys and values, up to 16 heads a key head: keys are
// operand A as they lie, heads operand B; then probabilities A, and values, whose rows lie by twos
// side by side, B. Softmax and merging are attention_state.inc.h's, the bits attention.inc.h's.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kLoneHeads = 16;

enum LoneTile {
  kLoneScores0,
  kLoneScores1,
  kLoneHeadTile,
  kLoneWeights,
  kLoneRows0,
  kLoneRows1,
  kLoneOut0,
  kLoneOut1
};

// kLanes: columns of scores, a power of two.
inline TileConfig lone_shapes(std::uint32_t n_heads, std::uint32_t lanes) {
  TileConfig config;
  config.set(kLoneScores0, 16, 4 * lanes);
  config.set(kLoneScores1, 16, 4 * lanes);
  config.set(kLoneHeadTile, 16, 4 * lanes);
  config.set(kLoneWeights, n_heads, 64);
  config.set(kLoneRows0, 16, 64);
  config.set(kLoneRows1, 16, 64);
  config.set(kLoneOut0, n_heads, 64);
  config.set(kLoneOut1, n_heads, 64);
  return config;
}

// One side of a tile, 64 rows behind each other.
struct LoneRows {
  const std::uint8_t* at;
  std::size_t row_bytes;
};

// Every kLanes-th float from `in` on side by side: column c of [16][kLanes] in out[c].
template <int kLanes>
inline __attribute__((always_inline)) void columns_of(const U32x16 (&in)[kLanes],
                                                      U32x16 (&out)[kLanes]) {
  if constexpr (kLanes == 1) {
    out[0] = in[0];
  } else {
    constexpr int kHalf = kLanes / 2;
    U32x16 even[kHalf], odd[kHalf], even_columns[kHalf], odd_columns[kHalf];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      even[i] = even_lanes(in[2 * i], in[2 * i + 1]);
      odd[i] = odd_lanes(in[2 * i], in[2 * i + 1]);
    }
    columns_of<kHalf>(even, even_columns);
    columns_of<kHalf>(odd, odd_columns);
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      out[2 * i] = even_columns[i];
      out[2 * i + 1] = odd_columns[i];
    }
  }
}

// Of sixteen-bit halves of a followed by b, those of odd places: the bf16 of floats that are exact.
inline __m512i high_halves(F32x16 a, F32x16 b) {
  const __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i first = _mm512_add_epi32(_mm512_slli_epi32(place, 2), _mm512_slli_epi32(place, 18)),
                odd = _mm512_add_epi32(first, _mm512_set1_epi32(0x00030001));  // words 1, 3, 5 …
  return _mm512_permutex2var_epi16(bits(a), odd, bits(b));
}

template <class Tiles, int kLanes>
class LoneAttention {
 public:
  LoneAttention(const AttentionJob& job, const AttentionItem& item, float* scratch)
      : job_(job),
        item_(item),
        n_(job.queries_per_kv),
        s_(lay_out(job, n_, scratch)),
        tiles_(lone_shapes(n_, kLanes)) {
    // Nothing is unpacked, so that the places for it are free.
    q_ = reinterpret_cast<std::uint8_t*>(s_.keys);
    weights_ = q_ + std::size_t{job.head_dim} * 32;
    product_ = reinterpret_cast<float*>(weights_ + 2 * 64 * kLoneHeads);
    values_ = reinterpret_cast<std::uint8_t*>(s_.values);
    scores_ = s_.values + std::size_t{job.head_dim} * kTileKeys / 2;
  }

  // False, and nothing done that counts, where an output is not finite.
  bool attend() {
    start(job_, item_, s_);
    place_heads();
    return walk_tiles(job_, item_, s_, [&](std::uint32_t tile, KeyRange keys, std::uint32_t end) {
      const std::uint32_t next = tile + kTileKeys;
      return attend_tile(tile, inside(keys, tile), next < end ? inside(keys, next).end : 0);
    });
  }

 private:
  // [step][16 pairs of d][lane]
  void place_heads() {
    for (std::size_t d = 0; d < job_.head_dim; d += kStep) {
      U32x16 rows[16], columns[16];
      for (std::size_t i = 0; i < 16; ++i) {
        const float* const q = s_.q + i * s_.v_stride + d;
        rows[i] = i < n_ ? high_halves(load(q), load(q + 16)) : set1_u(0);
      }
      transpose(rows, columns);
      for (std::size_t i = 0; i < 16; ++i) _mm512_storeu_si512(q_ + (d / 2 + i) * 64, columns[i]);
    }
  }

  // What is read next is asked for all the while, evenly in time: the tile's values while its keys
  // are walked and while lanes work on scores, the next tile's keys while its values are walked.
  // Rows beyond the sixteen (of values: the pair) that seen.end ends in are not touched.
  bool attend_tile(std::uint32_t tile, KeyRange seen, std::uint32_t n_next) {
    const std::size_t row_bytes = std::size_t{job_.head_dim} * 2;
    const LoneRows keys{key_row(job_, item_, job_.k, tile), row_bytes},
        values{key_row(job_, item_, job_.v, tile), row_bytes};
    ahead_ = {values.at, values.at + seen.end * row_bytes};
    score(keys, seen.end);
    const std::uint32_t share = (job_.head_dim + 2 * n_ - 1) / (2 * n_);  // of half the lines
    TileState states[kLoneHeads];
    for (std::size_t i = 0; i < n_; ++i) {
      float* const p = s_.p + i * kTileKeys;
      ahead_.ask_beyond_l1(share);
      states[i] = soften(job_, /*rounds=*/true, p, seen);
      ahead_.ask_beyond_l1(share);
      for (std::size_t j = 0; j < kTileKeys; j += kStep)
        _mm512_storeu_si512(weights_ + (i * kTileKeys + j) * 2,
                            high_halves(load(p + j), load(p + j + 16)));
    }
    const std::uint8_t* const next =
        n_next > 0 ? key_row(job_, item_, job_.k, tile + kTileKeys) : nullptr;
    ahead_ = {next, next ? next + n_next * row_bytes : nullptr};
    if (!weigh(values, seen.end)) return false;
    merge_tile(states);
    return true;
  }

  // p[pair][key] = q · k, of whole sixteens of keys.
  void score(const LoneRows& keys, std::uint32_t n_keys) {
    for (std::size_t run = 0; run < n_keys; run += 32) {
      const std::uint8_t* const at = keys.at + run * keys.row_bytes;
      const bool has_second = run + 16 < n_keys;
      for (std::size_t d = 0; d < job_.head_dim; d += kStep) {
        tiles_.template load<kLoneHeadTile>(q_ + d * 32, 64);
        tiles_.template load<kLoneRows0>(at + 2 * d, keys.row_bytes);
        tiles_.template multiply_bf16<kLoneScores0, kLoneRows0, kLoneHeadTile>();
        tiles_.template clear<kLoneRows0>();
        ahead_.ask_beyond_l1(8);
        if (!has_second) continue;
        tiles_.template load<kLoneRows1>(at + 16 * keys.row_bytes + 2 * d, keys.row_bytes);
        tiles_.template multiply_bf16<kLoneScores1, kLoneRows1, kLoneHeadTile>();
        tiles_.template clear<kLoneRows1>();
        ahead_.ask_beyond_l1(8);
      }
      leave<kLoneScores0>(scores_ + run * kLanes, 4 * kLanes);
      if (has_second) leave<kLoneScores1>(scores_ + (run + 16) * kLanes, 4 * kLanes);
    }
    tiles_.template clear<kLoneHeadTile>();
    for (std::size_t j = 0; j < n_keys; j += 16) {
      U32x16 rows[kLanes], columns[kLanes];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i) rows[i] = load_u(scores_ + j * kLanes + 16 * i);
      columns_of<kLanes>(rows, columns);
      for (std::size_t i = 0; i < n_; ++i) store(s_.p + i * kTileKeys + j, from_bits(columns[i]));
    }
  }

  // Tiles of sums are zero between uses.
  template <int T>
  inline void leave(float* to, std::size_t stride_bytes) {
    tiles_.template store<T>(to, stride_bytes);
    tiles_.template clear<T>();
  }

  // The tile's own output, 16 d at a time in two halves of each 32: product[half][pair][16]. False
  // where it is not finite: a value that is not, of a key that no head sees, must not count.
  bool weigh(const LoneRows& values, std::uint32_t n_keys) {
    F32x16 nothing = zero();
    for (std::size_t d = 0; d < job_.head_dim; d += kStep) {
      std::uint8_t* const to = values_ + d / kStep % 2 * 4 * 16 * kTileStride;
      const auto rows_of = [&](std::size_t key) { return to + key / kStep * 2 * 16 * kTileStride; };
      for (std::size_t key = 0; key < n_keys; key += kStep)
        pair_rows(values, key, n_keys, d, rows_of(key));
      for (std::size_t key = 0; key < n_keys; key += kStep) {
        tiles_.template load<kLoneWeights>(weights_ + 2 * key, 2 * kTileKeys);
        tiles_.template load<kLoneRows0>(rows_of(key), kTileStride);
        tiles_.template multiply_bf16<kLoneOut0, kLoneWeights, kLoneRows0>();
        tiles_.template clear<kLoneRows0>();
        tiles_.template load<kLoneRows1>(rows_of(key) + 16 * kTileStride, kTileStride);
        tiles_.template multiply_bf16<kLoneOut1, kLoneWeights, kLoneRows1>();
        tiles_.template clear<kLoneRows1>();
        tiles_.template clear<kLoneWeights>();
      }
      float* const product = product_ + d * n_;
      leave<kLoneOut0>(product, 64);
      leave<kLoneOut1>(product + 16 * n_, 64);
    }
    for (std::size_t i = 0; i < n_ * job_.head_dim; i += 16)
      nothing = fma(load(product_ + i), zero(), nothing);
    return _mm512_cmp_ps_mask(nothing, nothing, _CMP_UNORD_Q) == 0;
  }

  // 32 values of keys [key, key + 32), two keys side by side: of each eight d four, then the
  // others. Zeros in the place of pairs from n_keys on.
  inline __attribute__((always_inline)) void pair_rows(const LoneRows& values,
                                                       std::size_t key,
                                                       std::uint32_t n_keys,
                                                       std::size_t d,
                                                       std::uint8_t* to) {
    const std::uint8_t* const at = values.at + key * values.row_bytes + 2 * d;
    const std::size_t pairs_left = (n_keys - key + 1) / 2,
                      n_pairs = pairs_left < 16 ? pairs_left : 16;
    for (std::size_t i = n_pairs; i < 16; ++i) {
      _mm512_storeu_si512(to + i * kTileStride, _mm512_setzero_si512());
      _mm512_storeu_si512(to + (16 + i) * kTileStride, _mm512_setzero_si512());
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < n_pairs; ++i) {
      const U32x16 first = load_u(at + 2 * i * values.row_bytes),
                   second = load_u(at + (2 * i + 1) * values.row_bytes);
      ahead_.ask_beyond_l1(2);
      _mm512_storeu_si512(to + i * kTileStride, _mm512_unpacklo_epi16(first, second));
      _mm512_storeu_si512(to + (16 + i) * kTileStride, _mm512_unpackhi_epi16(first, second));
    }
  }

  void merge_tile(const TileState* states) {
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (std::size_t i = 0; i < n_; ++i) {
      float keep = 0, gain = 0;
      merge(s_, i, states[i], &keep, &gain);
      const F32x16 kept = set1(keep), gained = set1(gain);
      float* const out = s_.out + i * s_.v_stride;
      for (std::size_t d = 0; d < job_.head_dim; d += kStep) {
        const float* const from = product_ + d * n_ + 16 * i;
        const U32x16 low = load_u(from), high = load_u(from + 16 * n_);
        const F32x16 sums[2] = {from_bits(_mm512_permutex2var_epi64(low, first, high)),
                                from_bits(_mm512_permutex2var_epi64(low, second, high))};
        for (std::size_t half = 0; half < 2; ++half) {
          float* const o = out + d + 16 * half;
          store(o, fma(load(o), kept, mul(sums[half], gained)));
        }
      }
    }
  }

  const AttentionJob& job_;
  const AttentionItem& item_;
  const std::uint32_t n_;
  AttentionScratch s_;
  std::uint8_t *q_, *weights_, *values_;  // tiles: [step][16][lane] pairs, [head][64] bf16
  float *product_, *scores_;              // [half of 32 d][head][16], [key][lane]
  LinesAhead ahead_{nullptr, nullptr};
  Tiles tiles_;
};

inline bool suits_lone(const AttentionJob& job, const AttentionItem& item) {
  return rounds_operands(job) && !item.is_encoded && item.n_queries == 1 &&
         job.queries_per_kv <= kLoneHeads && job.head_dim % kStep == 0 &&
         job.head_dim <= kWidestHead && job.block_tokens % kTileKeys == 0;
}

template <class Tiles>
inline bool attend_lone(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  if (job.queries_per_kv == 1) return LoneAttention<Tiles, 1>(job, item, scratch).attend();
  if (job.queries_per_kv == 2) return LoneAttention<Tiles, 2>(job, item, scratch).attend();
  if (job.queries_per_kv <= 4) return LoneAttention<Tiles, 4>(job, item, scratch).attend();
  if (job.queries_per_kv <= 8) return LoneAttention<Tiles, 8>(job, item, scratch).attend();
  return LoneAttention<Tiles, 16>(job, item, scratch).attend();
}

}  // namespace
}  // namespace kvasir::backend::cpu
