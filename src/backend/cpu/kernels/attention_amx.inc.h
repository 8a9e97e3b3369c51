// Attention's products on tiles. Keys are operand A as they lie in memory, queries B; values are A
// transposed, probabilities B.

namespace kvasir::backend::cpu {
namespace {

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

enum AttentionTile { kScores0, kScores1, kScores2, kScores3, kQueries0, kQueries1, kKeys0, kKeys1 };

inline TileConfig attention_shapes() {
  TileConfig config;
  for (int tile = kScores0; tile <= kKeys1; ++tile) config.set(tile, 16, 64);
  return config;
}

template <class Tiles>
class TileEngine {
 public:
  static constexpr std::uint32_t kTilesPacked = kTilesTogether;

  static void place_queries(std::uint8_t* to, std::size_t d, const U32x16 (&columns)[16]) {
    for (std::size_t i = 0; i < 8; ++i)
      _mm512_storeu_si512(to + (d / 2 + i) * kOperandStride,
                          join_bf16(from_bits(columns[2 * i]), from_bits(columns[2 * i + 1])));
  }

  bool pack_tile(const LaneAttention& a, std::uint32_t tile, std::uint32_t slot) {
    const TileRows rows = rows_of_tile(a, a.job.v, tile);
    __m512i largest = _mm512_setzero_si512();
    for (std::size_t d = 0; d < a.job.head_dim; d += kStep) {
      for (std::size_t step = 0; step < 2; ++step) {
        std::uint8_t* const to = a.values_of(slot) + (d / 16 * 2 + step) * 16 * kTileStride;
        transpose_values<false>(rows.at + step * kStep, d, to, largest);
        transpose_values<true>(rows.at + step * kStep, d, to, largest);
      }
    }
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0;
  }

  inline __attribute__((always_inline)) void start_scores(const LaneAttention& a,
                                                          std::uint32_t tile) {
    for (std::uint32_t i = 0; i < kKeyRuns; ++i) {  // those that a query sees something of
      const std::uint32_t first = tile + i * kKeyRun;
      const bool is_there = first < a.keys_seen.end && first + kKeyRun > a.keys_seen.begin;
      runs_[i] = is_there ? key_row(a.job, a.item, a.job.k, first) : nullptr;
    }
  }
  // A run of keys and a quarter of head_dim, or what of that its first 256 have.
  template <int Run>
  inline __attribute__((always_inline)) void score_some(const LaneAttention& a,
                                                        std::uint32_t block,
                                                        std::uint32_t quarter) {
    const std::size_t n = a.n_steps <= 4 ? 1 : 2, step = quarter * n;
    if (step < a.n_steps) score_step<Run, kQueries0>(a, block, step);
    if (n == 2 && step + 1 < a.n_steps) score_step<Run, kQueries1>(a, block, step + 1);
  }
  inline __attribute__((always_inline)) void finish_scores(const LaneAttention& a,
                                                           std::uint32_t block,
                                                           float* scores) {
    for (std::size_t step = 8; step < a.n_steps; ++step)
      unrolled<0, kKeyRuns>([&]<int Run>() { score_step<Run, kQueries0>(a, block, step); });
    unrolled<0, kKeyRuns>([&]<int Run>() __attribute__((always_inline)) {
      if (!runs_[Run]) return;
      tiles_.template store<kScores0 + Run>(scores + std::size_t{Run} * kBlockFloats, kTileStride);
      tiles_.template clear<kScores0 + Run>();
    });
  }

  static inline void place_probabilities(std::uint8_t* p,
                                         std::uint32_t key,
                                         const F32x16 (&e)[4],
                                         U32x16 interleave) {
    std::uint8_t* const to = p + key / 2 * kOperandStride;
    _mm512_storeu_si512(to, join_normal_bf16(e[0], e[1], interleave));
    _mm512_storeu_si512(to + kOperandStride, join_normal_bf16(e[2], e[3], interleave));
  }

  // A product leaves its tile when the next one is on its way, and is merged one later still.
  template <class Merge>
  inline __attribute__((always_inline)) void weigh(const LaneAttention& a,
                                                   std::uint32_t slot,
                                                   const Merge& merge) {
    constexpr std::uint32_t kAhead = 2;
    const std::uint32_t n_parts = a.job.head_dim / 16;
    tiles_.template load<kQueries0>(a.p, kTileStride);
    tiles_.template load<kQueries1>(a.p + 16 * kTileStride, kTileStride);
    for (std::uint32_t first = 0; first < n_parts + kAhead; first += 4) {
      unrolled<0, 4>([&]<int J>() __attribute__((always_inline)) {
        const std::uint32_t part = first + J;
        const std::uint8_t* const values =
            a.values_of(slot) + std::size_t{part} * 2 * 16 * kTileStride;
        const bool merges = part >= kAhead && part < n_parts + kAhead, weighs = part < n_parts;
        if (weighs) weigh_step<0, J>(values);
        if (part > 0 && part <= n_parts) {
          constexpr int kBefore = (J + 3) % 4;
          tiles_.template store<kScores0 + kBefore>(a.product + kBefore * kBlockFloats,
                                                    kTileStride);
          tiles_.template clear<kScores0 + kBefore>();
        }
        if (merges) merge(part - kAhead, 0);
        if (weighs) weigh_step<1, J>(values);
        if (merges) merge(part - kAhead, 1);
      });
    }
    tiles_.template clear<kQueries0>();
    tiles_.template clear<kQueries1>();
  }

 private:
  // The first run has the queries' tile loaded for all of them.
  template <int Run, int kQueries>
  inline __attribute__((always_inline)) void score_step(const LaneAttention& a,
                                                        std::uint32_t block,
                                                        std::size_t step) {
    if constexpr (Run == 0)
      tiles_.template load<kQueries>(
          a.q + (std::size_t{block} * a.n_steps + step) * 16 * kTileStride, kTileStride);
    if (!runs_[Run]) return;
    tiles_.template load<kKeys0 + Run % 2>(runs_[Run] + step * 64, std::size_t{a.job.head_dim} * 2);
    tiles_.template multiply_bf16<kScores0 + Run, kKeys0 + Run % 2, kQueries>();
    tiles_.template clear<kKeys0 + Run % 2>();
  }
  template <int kStepOfKeys, int J>
  inline __attribute__((always_inline)) void weigh_step(const std::uint8_t* values) {
    tiles_.template load<kKeys0 + kStepOfKeys>(values + kStepOfKeys * 16 * kTileStride,
                                               kTileStride);
    tiles_.template multiply_bf16<kScores0 + J, kKeys0 + kStepOfKeys, kQueries0 + kStepOfKeys>();
    tiles_.template clear<kKeys0 + kStepOfKeys>();
  }

  Tiles tiles_{attention_shapes()};
  const std::uint8_t* runs_[kKeyRuns] = {};  // the tile's keys, or null
};

}  // namespace
}  // namespace kvasir::backend::cpu
