// Attention's products of bf16 pairs (linear_dots.inc.h says how those add): the lanes' operand is
// a vector, the other one is spread. Of each 32 of the inner dimension the even chain's eight pairs
// come first: elements (0, 2), (4, 6) …; then the odd one's, (1, 3), (5, 7) …

namespace kvasir::backend::cpu {
namespace {

// Words of a step's 32 elements as those pairs: of each its second element, then its first.
inline __m512i pairs_of_a_step() {
  alignas(64) std::uint16_t words[32];
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t first = i % 8 * 4 + i / 8;
    words[2 * i] = static_cast<std::uint16_t>(first + 2);
    words[2 * i + 1] = static_cast<std::uint16_t>(first);
  }
  return load_u(words);
}

// A step of kTogether results: chain after chain over its pairs, then both added to the sums.
constexpr std::size_t kTogether = 8;
inline __attribute__((always_inline)) void add_step(const std::uint8_t* lanes,
                                                    const std::uint8_t* spread_from,
                                                    std::size_t pair_bytes,
                                                    std::size_t result_bytes,
                                                    F32x16 (&sums)[kTogether]) {
  F32x16 chains[2][kTogether];
#pragma GCC unroll 2
  for (std::size_t parity = 0; parity < 2; ++parity) {
#pragma GCC unroll 8
    for (F32x16& c : chains[parity]) c = zero();
    for (std::size_t i = 8 * parity; i < 8 * parity + 8; ++i) {
      const U32x16 operand = load_u(lanes + i * kOperandStride);
      const std::uint8_t* const from = spread_from + i * pair_bytes;
#pragma GCC unroll 8
      for (std::size_t r = 0; r < kTogether; ++r) {
        std::uint32_t pair = 0;
        __builtin_memcpy(&pair, from + r * result_bytes, 4);
        chains[parity][r] = multiply_add(operand, set1_u(pair), chains[parity][r]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kTogether; ++r)
    sums[r] = add(sums[r], add(chains[0][r], chains[1][r]));
}

class DotEngine {
 public:
  static constexpr std::uint32_t kTilesPacked = 1;

  static void place_queries(std::uint8_t* to, std::size_t d, const U32x16 (&columns)[16]) {
    std::uint8_t* const step = to + d / kStep * 16 * kOperandStride;
    for (std::size_t parity = 0; parity < 2; ++parity) {
      for (std::size_t i = 0; i < 4; ++i)
        _mm512_storeu_si512(
            step + (8 * parity + d % kStep / 4 + i) * kOperandStride,
            join_bf16(from_bits(columns[4 * i + 2 + parity]), from_bits(columns[4 * i + parity])));
    }
  }

  // Keys: [key][d], each step's elements as pairs. Values: [32 keys][pair of keys][d].
  bool pack_tile(const LaneAttention& a, std::uint32_t tile, std::uint32_t) {
    const std::size_t dim = a.job.head_dim;
    const KeyRange keys = a.keys_seen;
    const TileRows k = rows_of_tile(a, a.job.k, tile), v = rows_of_tile(a, a.job.v, tile);
    const __m512i pairs = pairs_of_a_step(), magnitude = _mm512_set1_epi16(0x7fff);
    for (std::size_t key = 0; key < kTileKeys; ++key) {
      for (std::size_t d = 0; d < dim; d += kStep)
        _mm512_storeu_si512(a.keys + (key * dim + d) * 2,
                            _mm512_permutexvar_epi16(pairs, load_u(k.at[key] + 2 * d)));
    }
    const __m512i low = interleaving_halves(),  // words of `second`, then of `first` above them
        high = add_u(low, set1_u(0x00100010u)), first_words = set1_u(0x00100000u);
    const __m512i of_low = add_u(low, first_words), of_high = add_u(high, first_words);
    __m512i largest = _mm512_setzero_si512();
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t key = i / 16 * kStep + i % 8 * 4 + i % 16 / 8;
      for (std::size_t d = 0; d < dim; d += kStep) {
        const __m512i first = load_u(v.at[key] + 2 * d), second = load_u(v.at[key + 2] + 2 * d);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(first, magnitude));
        largest = _mm512_max_epu16(largest, _mm512_and_si512(second, magnitude));
        std::uint8_t* const to = a.values + (i * dim + d) * 4;
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(second, of_low, first));
        _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi16(second, of_high, first));
      }
    }
    for (std::uint32_t i = 0; i < kKeyRuns; ++i) {
      const std::uint32_t first = tile + i * kKeyRun;
      is_seen_[i] = first < keys.end && first + kKeyRun > keys.begin;
    }
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0;
  }

  // All at the end: there is nothing that would go on beside the lanes.
  void start_scores(const LaneAttention&, std::uint32_t) {}
  template <int Run>
  void score_some(const LaneAttention&, std::uint32_t, std::uint32_t) {}
  void finish_scores(const LaneAttention& a, std::uint32_t block, float* scores) {
    const std::size_t key_bytes = std::size_t{a.job.head_dim} * 2;
    const std::uint8_t* const q = a.q + std::size_t{block} * a.n_steps * 16 * kOperandStride;
    for (std::size_t key = 0; key < kTileKeys; key += kTogether) {
      if (!is_seen_[key / kKeyRun]) continue;
      F32x16 sums[kTogether];
      for (F32x16& s : sums) s = zero();
      for (std::size_t s = 0; s < a.n_steps; ++s)
        add_step(q + s * 16 * kOperandStride, a.keys + key * key_bytes + s * 64, 4, key_bytes,
                 sums);
      for (std::size_t i = 0; i < kTogether; ++i) store(scores + (key + i) * kPairLanes, sums[i]);
    }
  }

  static inline void place_probabilities(std::uint8_t* p,
                                         std::uint32_t key,
                                         const F32x16 (&e)[4],
                                         U32x16 interleave) {
    std::uint8_t* const to = p + (key / kStep * 16 + key % kStep / 4) * kOperandStride;
    _mm512_storeu_si512(to, join_normal_bf16(e[2], e[0], interleave));
    _mm512_storeu_si512(to + 8 * kOperandStride, join_normal_bf16(e[3], e[1], interleave));
  }

  template <class Merge>
  inline void weigh(const LaneAttention& a, std::uint32_t, const Merge& merge) {
    const std::size_t pair_bytes = std::size_t{a.job.head_dim} * 4;
    for (std::uint32_t d = 0; d < a.job.head_dim; d += kTogether) {
      F32x16 sums[kTogether];
      for (F32x16& s : sums) s = zero();
      for (std::size_t s = 0; s < 2; ++s)
        add_step(a.p + s * 16 * kOperandStride, a.values + s * 16 * pair_bytes + d * 4, pair_bytes,
                 4, sums);
      float* const to = a.product + d % 64 * kPairLanes;
      for (std::size_t i = 0; i < kTogether; ++i) store(to + i * kPairLanes, sums[i]);
      merge(d / 16, d / kTogether % 2);
    }
  }

 private:
  bool is_seen_[kKeyRuns] = {};
};

}  // namespace
}  // namespace kvasir::backend::cpu
