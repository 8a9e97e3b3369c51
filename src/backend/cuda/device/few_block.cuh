// What four warps do with a unit of keys: scores, probabilities, sums of values, and what a segment
// comes to. Keys and values are operand A, pairs (query, head) are columns; every element's chain
// of additions is that of attention_many.cu, where pairs are rows. Elements of encoded rows are
// made in registers on their way into a product.
#pragma once

#include "backend/cuda/device/attention_tiles.cuh"
#include "backend/cuda/device/decoded_pairs.cuh"
#include "backend/cuda/device/few_layout.cuh"
#include "backend/cuda/device/packed_pairs.cuh"

namespace kvasir::backend::cuda {

// A step of the product adds its 16 products as one, in whatever places they are (sm_90): so a
// thread's four elements of a step are neighbours in encoded rows. Before: two eights.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kAnyPlace = true;
#else
constexpr bool kAnyPlace = false;
#endif

// Lane 4 g + c has row g, columns 2c and 2c + 1 of 8 x 8: afterwards of the matrix turned over.
__device__ inline std::uint32_t transposed(std::uint32_t x) {
  std::uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

template <class S>
struct FewBlock {
  using Runs = FewRuns<S>;
  const AttentionParams& p;
  const FewLayout& at;
  std::byte* shared;
  const FewSource& source;
  const KvRow& row;
  std::uint32_t m, warp, lane;
  KeyRange seen[S::kGroups][2];  // of pairs 8 n + 2 c + e
  std::uint32_t query[S::kSteps][S::kGroups][2];
  float out[S::kColumns][S::kGroups][4], merged[S::kColumns][S::kGroups][4];
  float max[S::kGroups][2], merged_max[S::kGroups][2];
  Softmax own[S::kGroups], own_merged[S::kGroups];  // of pairs 8 n + g, in warp kSumWarp
  float own_keep[S::kTiles][S::kGroups];
  std::uint32_t query_down;  // kIsPacked: takes queries back to what they were

  // Of the block's pairs; ready after a barrier.
  __device__ QueryRow& pair(std::uint32_t i) const {
    return reinterpret_cast<QueryRow*>(shared + at.pairs)[i];
  }
  __device__ void find_pairs() {
    if (threadIdx.x < S::kPairs)
      pair(threadIdx.x) = query_row(p, row, source.head, m + threadIdx.x);
    __syncthreads();
  }

  __device__ void load_queries() {
    const std::uint32_t g = lane / 4, c = lane % 4;
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
      seen[n][0] = pair(8 * n + 2 * c).seen, seen[n][1] = pair(8 * n + 2 * c + 1).seen;
      const QueryRow q = pair(8 * n + g);
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
        const bool is_natural = !S::kEncoded || !kAnyPlace;
        const std::uint32_t d = 16 * step + (is_natural ? 2 * c : 4 * c);
        query[step][n][0] = query_pair(p, q, d);
        query[step][n][1] = query_pair(p, q, d + (is_natural ? 8 : 2));
      }
    }
  }

  __device__ void start_segment() {
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
      max[n][0] = max[n][1] = minus_infinity();
      own[n] = {minus_infinity(), 0.0f};
#pragma unroll
      for (int k = 0; k < S::kColumns; ++k)
        for (int e = 0; e < 4; ++e) out[k][n][e] = 0.0f;
    }
  }
  __device__ void start() {
    start_segment();
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
      merged_max[n][0] = merged_max[n][1] = minus_infinity();
      own_merged[n] = {minus_infinity(), 0.0f};
#pragma unroll
      for (int k = 0; k < S::kColumns; ++k)
        for (int e = 0; e < 4; ++e) merged[k][n][e] = 0.0f;
    }
  }

  // Tables of the warp's rows, from position `first` on; whether all scales can be taken as tables
  // have them.
  __device__ bool make_key_table(std::uint32_t first) const {
    return make_few_table<S>(source, p.k, at.k, shared, first, warp, lane);
  }
  __device__ bool make_value_table(std::uint32_t first) const {
    return make_few_table<S>(source, p.v, at.v, shared, first, warp, lane);
  }

  using Scores = float[S::kKeySteps][S::kGroups][4];  // keys g and g + 8, pairs 2 c and 2 c + 1

  __device__ void score_exact(Scores& x) const {
    const std::uint32_t from = shared_address(shared) + at.k.codes +
                               (warp * S::kRows + lane / 8 % 2 * 8 + lane % 8) * at.k.stride +
                               lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      if (!S::kIsLone && 16u * step >= p.dim) break;
#pragma unroll
      for (int k = 0; k < S::kKeySteps; ++k) {
        std::uint32_t a[4];
        load_matrices(a, from + 16 * k * at.k.stride + 32 * step);
#pragma unroll
        for (int n = 0; n < S::kGroups; ++n)
          multiply_add(x[k][n], a, query[step][n][0], query[step][n][1]);
      }
    }
  }

  // The thread's elements of step `step` of a key: two words of operand A.
  template <KvKind kKind, int kBits, bool kShifted>
  __device__ static uint2 key_pairs(const std::byte* row, int step, std::uint32_t c, GroupScale g) {
    const auto pair = [&](std::uint32_t w, int i) {
      return pack_bf16(decoded<kKind, kBits, kShifted>(w, i, g, nullptr),
                       decoded<kKind, kBits, kShifted>(w, i + 1, g, nullptr));
    };
    if constexpr (kAnyPlace) {
      const std::uint32_t w = load_window<kBits, 4>(row, 4 * step + c);
      const uint2 pairs{pair(w, 0), pair(w, 2)};
      return S::kBits == 4 ? uint2{__byte_perm(pairs.x, pairs.y, 0x5410),
                                   __byte_perm(pairs.x, pairs.y, 0x7632)}
                           : pairs;
    }
    return {pair(load_window<kBits, 2>(row, 8 * step + c), 0),
            pair(load_window<kBits, 2>(row, 8 * step + 4 + c), 0)};
  }
  __device__ std::uint32_t stored_query(int step, int n, int i) const {
    return S::kIsPacked ? times(query[step][n][i], query_down) : query[step][n][i];
  }
  // kShifted: scales are those of the table; otherwise, of affine codes of 8 bits, as stored.
  template <KvKind kKind, int kBits, bool kShifted>
  __device__ void score_codes(Scores& x) const {
    constexpr bool kIsStored = S::kIsPacked || (kKind == KvKind::affine && kBits == 8 && !kShifted);
    const std::uint32_t c = lane % 4, group_shift = 31 - __clz(static_cast<int>(p.k.group));
    const auto* const table = reinterpret_cast<const float2*>(shared + at.k.table);
#pragma unroll 1
    for (int k = 0; k < S::kKeySteps; ++k) {
      const std::uint32_t key = warp * S::kRows + 16 * k + lane / 4;
      const std::byte* const near = shared + at.k.codes + key * at.k.stride;
      const std::byte* const far = near + 8 * at.k.stride;
      float sum[S::kGroups][4] = {};
#pragma unroll
      for (int two = 0; two < S::kSteps / 2; ++two) {
        if (32u * two >= p.dim) break;
        const std::uint32_t group = 32u * two >> group_shift;
        GroupScale low, high;
        if constexpr (kIsStored) {
          low = stored_scale(p.k, at.k, shared, key, group);
          high = stored_scale(p.k, at.k, shared, key + 8, group);
        } else {
          const float2* const scales = table + group * S::kUnit + key;
          low = {scales[0].x, scales[0].y}, high = {scales[8].x, scales[8].y};
        }
#pragma unroll
        for (int step = 2 * two; step < 2 * two + 2; ++step) {
          const uint2 first = key_pairs<kKind, kBits, kShifted>(near, step, c, low),
                      second = key_pairs<kKind, kBits, kShifted>(far, step, c, high);
          const std::uint32_t a[4] = {first.x, second.x, first.y, second.y};
#pragma unroll
          for (int n = 0; n < S::kGroups; ++n)
            multiply_add(sum[n], a, stored_query(step, n, 0), stored_query(step, n, 1));
        }
      }
#pragma unroll
      for (int u = 0; u < S::kKeySteps; ++u) {
#pragma unroll
        for (int n = 0; n < S::kGroups; ++n)
          for (int e = 0; e < 4; ++e) x[u][n][e] = u == k ? sum[n][e] : x[u][n][e];
      }
    }
  }

  __device__ static void clear(Scores& x) {
#pragma unroll
    for (int k = 0; k < S::kKeySteps; ++k)
      for (int n = 0; n < S::kGroups; ++n) x[k][n][0] = x[k][n][1] = x[k][n][2] = x[k][n][3] = 0.0f;
  }
  // Scores of the warp's keys, from position `first` on; not visible: minus infinity.
  __device__ void find_scores(std::uint32_t first, bool is_exact_table, Scores& x) const {
    clear(x);
    if constexpr (S::kEncoded) {
      with_codec(p.k, [&](auto kind, auto bits) {
        constexpr bool kShifts = kind.value == KvKind::affine && bits.value == 8;
        if constexpr (kShifts) {
          is_exact_table ? score_codes<kind.value, bits.value, true>(x)
                         : score_codes<kind.value, bits.value, false>(x);
        } else if constexpr (kind.value != KvKind::turbo_values) {
          score_codes<kind.value, bits.value, false>(x);
        }
      });
    } else {
      score_exact(x);
    }
    end_scores(first, x);
  }
  __device__ void end_scores(std::uint32_t first, Scores& x) const {
    if (!S::kIsLone && p.has_softcap != 0) {
#pragma unroll
      for (int k = 0; k < S::kKeySteps; ++k)
        for (int n = 0; n < S::kGroups; ++n)
          for (int e = 0; e < 4; ++e) x[k][n][e] = score_of(p, x[k][n][e]);
    }
    if (S::kIsLone && first >= source.begin && first + S::kRows <= source.end) return;
    bool all_seen = true;
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n)
      for (int e = 0; e < 2; ++e)
        all_seen = all_seen && (seen[n][e].end == 0 ||  // no such pair
                                (first >= seen[n][e].begin && first + S::kRows <= seen[n][e].end));
    if (__all_sync(~0u, all_seen)) return;
#pragma unroll
    for (int k = 0; k < S::kKeySteps; ++k) {
#pragma unroll
      for (int n = 0; n < S::kGroups; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const std::uint32_t key = first + 16 * k + e / 2 * 8 + lane / 4;
          const KeyRange& range = seen[n][e % 2];
          if (key < range.begin || key >= range.end) x[k][n][e] = minus_infinity();
        }
      }
    }
  }

  __device__ float* maxima() const { return reinterpret_cast<float*>(shared + at.maxima); }
  __device__ void tell_maxima(const Scores& x) const {
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float own_max = minus_infinity();
#pragma unroll
        for (int k = 0; k < S::kKeySteps; ++k)
          own_max = fmaxf(own_max, fmaxf(x[k][n][e], x[k][n][e + 2]));
#pragma unroll
        for (int half = 4; half < 32; half *= 2)
          own_max = fmaxf(own_max, __shfl_xor_sync(~0u, own_max, half));
        if (lane < 4) maxima()[(8 * n + 2 * lane + e) * S::kWarps + warp] = own_max;
      }
    }
  }
  // Of each warp, or of two neighbours.
  __device__ float4 maxima_of_four(std::uint32_t i) const {
    const auto* const fours = reinterpret_cast<const float4*>(maxima()) + i * (S::kWarps / 4);
    const float4 a = fours[0];
    if constexpr (S::kWarps == 4) return a;
    const float4 b = fours[S::kWarps / 4 - 1];
    return {fmaxf(a.x, a.y), fmaxf(a.z, a.w), fmaxf(b.x, b.y), fmaxf(b.z, b.w)};
  }
  // The running maximum of a pair after each tile, from what it was: f(tile, reference, what the
  // tile leaves of sums before it).
  template <class F>
  __device__ void walk_maxima(std::uint32_t i, float& running, F&& f) const {
    const float4 four = maxima_of_four(i);
    const auto take = [&](int t, float of_tile) {
      const float next = fmaxf(running, of_tile * p.out_scale), reference = reference_of(next);
      f(t, reference, exp2_of(running - reference));
      running = next;
    };
    if constexpr (S::kTiles == 2) {
      take(0, fmaxf(four.x, four.y));
      take(1, fmaxf(four.z, four.w));
    } else {
      take(0, four.x);
      take(1, four.y);
      take(2, four.z);
      take(3, four.w);
    }
  }

  // Probabilities to shared memory, as operand B of the values' product; what outputs so far are
  // multiplied by at each tile.
  __device__ void find_weights(Scores& x, float (&keep)[S::kTiles][S::kGroups][2]) {
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float reference = 0.0f;
        const std::uint32_t own_tile = warp * S::kTiles / S::kWarps;
        walk_maxima(8 * n + 2 * (lane % 4) + e, max[n][e], [&](int t, float found, float kept) {
          keep[t][n][e] = kept;
          reference = own_tile == static_cast<std::uint32_t>(t) ? found : reference;
        });
#pragma unroll
        for (int k = 0; k < S::kKeySteps; ++k) {
          x[k][n][e] = exp2_of(fmaf(x[k][n][e], p.out_scale, -reference));
          x[k][n][e + 2] = exp2_of(fmaf(x[k][n][e + 2], p.out_scale, -reference));
        }
      }
    }
#pragma unroll
    for (int k = 0; k < S::kKeySteps; ++k) {
#pragma unroll
      for (int n = 0; n < S::kGroups; ++n)
        *weights(warp * S::kKeySteps + k, n) = {transposed(weight_pair(x[k][n][0], x[k][n][1])),
                                                transposed(weight_pair(x[k][n][2], x[k][n][3]))};
    }
  }
  __device__ static std::uint32_t weight_pair(float low, float high) {
    const std::uint32_t pair = pack_bf16(low, high);
    return S::kIsPacked ? times(pair, kPackedUp) : pair;
  }
  __device__ uint2* weights(std::uint32_t step, int n) const {
    return reinterpret_cast<uint2*>(shared + at.weights) + (step * S::kGroups + n) * 32 + lane;
  }

  // Operand A of the values' product: 16 columns, 16 keys from 16 · step on.
  __device__ void load_exact_values(std::uint32_t step, std::uint32_t (&a)[S::kColumns][4]) const {
    const std::uint32_t from = shared_address(shared) + at.v.codes +
                               (16 * step + lane / 16 * 8 + lane % 8) * at.v.stride +
                               warp * 2 * S::kDims + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < S::kColumns; ++k) load_transposed(a[k], from + 32 * k);
  }
  // Of a run of columns each thread has neighbours: row g of operand A is a first one, row g + 8
  // the one behind it.
  static constexpr int kNeighbours = S::kColumns == 1 || S::kBits == 8 ? 2 : 4;
  template <KvKind kKind, int kBits, bool kShifted>
  __device__ void load_value_codes(std::uint32_t first,
                                   std::uint32_t step,
                                   const float* centroids,
                                   std::uint32_t (&a)[S::kColumns][4]) const {
    constexpr bool kIsStored = S::kIsPacked || (kKind == KvKind::affine && kBits == 8 && !kShifted);
    const std::uint32_t key = 16 * step + lane % 4 * 2,
                        group_shift = 31 - __clz(static_cast<int>(p.v.group));
    const std::byte* const row = shared + at.v.codes + key * at.v.stride;
#pragma unroll
    for (int k = 0; k < S::kColumns; k += kNeighbours / 2) {
      const std::uint32_t column = warp * S::kDims + 16 * k, group = column >> group_shift;
      GroupScale of[4];
      if constexpr (kIsStored) {
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
          const std::uint32_t k_of = key + j % 2 + j / 2 * 8, position = first + k_of;
          of[j] = {0.0f, 0.0f};
          if (position >= source.begin && position < source.end)
            of[j] = stored_scale(p.v, at.v, shared, k_of, group);
        }
      } else {
        const auto* const scales =
            reinterpret_cast<const float4*>(shared + at.v.table) + (group * S::kUnit + key) / 2;
        const float4 near = scales[0], far = scales[4];
        of[0] = {near.x, near.y}, of[1] = {near.z, near.w};
        of[2] = {far.x, far.y}, of[3] = {far.z, far.w};
      }
      std::uint32_t w[4];
#pragma unroll
      for (std::uint32_t j = 0; j < 4; ++j)
        w[j] = load_window<kBits, kNeighbours>(row + (j % 2 + j / 2 * 8) * at.v.stride,
                                               column / kNeighbours + lane / 4);
#pragma unroll
      for (int i = 0; i < kNeighbours; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          a[k + i / 2][i % 2 + 2 * h] =
              pack_bf16(decoded<kKind, kBits, kShifted>(w[2 * h], i, of[2 * h], centroids),
                        decoded<kKind, kBits, kShifted>(w[2 * h + 1], i, of[2 * h + 1], centroids));
      }
    }
  }

  __device__ bool has_keys(std::uint32_t tile) const {
    return tile < source.end && tile + kTile > source.begin;
  }
  // Sums of probabilities: a tile's by the warp of its number, beside the values' product; those of
  // a segment so far by the warp that has least to do, when after a barrier end_sums() is called.
  static constexpr std::uint32_t kSumWarp = S::kWarps - 1;
  __device__ float& tile_sum(std::uint32_t t, int n) const {
    return reinterpret_cast<float*>(shared + at.sums)[(t * S::kGroups + n) * 32 + lane];
  }
  __device__ void find_sums(std::uint32_t first) {
    if (warp == kSumWarp) {
#pragma unroll
      for (int n = 0; n < S::kGroups; ++n)
        walk_maxima(8 * n + lane / 4, own[n].max,
                    [&](int t, float, float kept) { own_keep[t][n] = kept; });
    }
    if (warp >= S::kTiles) return;
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
      float sum = 0.0f;
      if (has_keys(first + warp * kTile)) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint2 b = *weights(4 * warp + j, n);
          sum = add_pair(add_pair(sum, b.x), b.y);
        }
      }
      tile_sum(warp, n) = sum;
    }
  }
  __device__ void end_sums() {
    if (warp != kSumWarp) return;
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
        own[n].sum = fmaf(own[n].sum, own_keep[t][n], tile_sum(t, n));
    }
  }

  // What `of` has for tile t, from registers.
  template <class F>
  __device__ static float at_tile(int t, F&& of) {
    float out_of = of(0);
#pragma unroll
    for (int u = 1; u < S::kTiles; ++u) out_of = t == u ? of(u) : out_of;
    return out_of;
  }
  // load(step, a) brings the values of 16 keys. kTakesBack: they are not what few_packed.cuh makes,
  // weights are meant for those.
  template <bool kTakesBack = false, class Load>
  __device__ void add_values(std::uint32_t first,
                             const float (&keep)[S::kTiles][S::kGroups][2],
                             Load&& load) {
    constexpr bool kIsWhole = S::kIsLone || (S::kIsPacked && !kTakesBack);
    constexpr int kTilesAtOnce = kIsWhole ? S::kTiles : 1, kStepsAtOnce = kIsWhole ? 4 : 2;
    if (warp * S::kDims >= p.dim) return;
#pragma unroll kTilesAtOnce
    for (int t = 0; t < S::kTiles; ++t) {
      const std::uint32_t tile = first + t * kTile;
      if (!has_keys(tile)) continue;
#pragma unroll
      for (int n = 0; n < S::kGroups; ++n) {
        const float kept[2] = {at_tile(t, [&](int u) { return keep[u][n][0]; }),
                               at_tile(t, [&](int u) { return keep[u][n][1]; })};
#pragma unroll
        for (int k = 0; k < S::kColumns; ++k)
          for (int e = 0; e < 4; ++e) out[k][n][e] *= kept[e % 2];
      }
#pragma unroll kStepsAtOnce
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t step = 4 * t + j;
        std::uint32_t a[S::kColumns][4];
        load(step, a);
#pragma unroll
        for (int n = 0; n < S::kGroups; ++n) {
          uint2 b = *weights(step, n);
          if constexpr (kTakesBack) b = {times(b.x, kPackedDown), times(b.y, kPackedDown)};
#pragma unroll
          for (int k = 0; k < S::kColumns; ++k) multiply_add(out[k][n], a[k], b.x, b.y);
        }
      }
    }
  }
  __device__ void add_values(std::uint32_t first, const float (&keep)[S::kTiles][S::kGroups][2]) {
    if constexpr (S::kEncoded) {
      const auto* const centroids = reinterpret_cast<const float*>(shared + at.centroids);
      with_codec(p.v, [&](auto kind, auto bits) {
        constexpr bool kShifts = kind.value == KvKind::affine && bits.value == 8;
        if constexpr (kShifts) {
          const uint4 exact = *reinterpret_cast<const uint4*>(shared + at.exact);
          if ((exact.x & exact.y & exact.z & exact.w) != 0) {
            add_values(first, keep, [&](std::uint32_t step, auto& a) {
              load_value_codes<kind.value, bits.value, true>(first, step, centroids, a);
            });
            return;
          }
        }
        if constexpr (kind.value != KvKind::turbo_keys)
          add_values(first, keep, [&](std::uint32_t step, auto& a) {
            load_value_codes<kind.value, bits.value, false>(first, step, centroids, a);
          });
      });
    } else {
      add_values(first, keep, [&](std::uint32_t step, auto& a) { load_exact_values(step, a); });
    }
  }

  __device__ static bool meets(const KeyRange& range, std::uint32_t segment) {
    return segment * kSegment < range.end && (segment + 1) * kSegment > range.begin;
  }
  __device__ float segment_sum(int n) const {
    return sum_of_quad(own[n].sum) * (S::kIsPacked ? 1.0f / 256 : 1.0f);
  }
  __device__ void merge_segment(std::uint32_t segment) {
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
      if (warp == kSumWarp) {
        own[n].sum = segment_sum(n);
        if (meets(pair(8 * n + lane / 4).seen, segment)) merge(own_merged[n], own[n]);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (!meets(seen[n][e], segment)) continue;
        Softmax kept{merged_max[n][e], 0.0f};
        const Merge f = merge(kept, {max[n][e], 0.0f});
        merged_max[n][e] = kept.max;
#pragma unroll
        for (int k = 0; k < S::kColumns; ++k) {
#pragma unroll
          for (int r = e; r < 4; r += 2)
            merged[k][n][r] = fmaf(merged[k][n][r], f.keep, out[k][n][r] * f.gain);
        }
      }
    }
    start_segment();
  }

  // f(column, e / 2 …): the thread's places of an output row.
  __device__ std::uint32_t column_of(int k, int half) const {
    const std::uint32_t g = lane / 4, base = warp * S::kDims;
    if (!S::kEncoded) return base + 16 * k + 8 * half + g;
    return base + 16 * (k & ~(kNeighbours / 2 - 1)) + kNeighbours * g +
           2 * (k % (kNeighbours / 2)) + half;
  }
  __device__ void store_part(std::uint32_t row_index,
                             std::uint32_t segment,
                             std::uint32_t row_first) {
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
      if (warp == kSumWarp) {
        const float sum = segment_sum(n);
        const QueryRow q = pair(8 * n + lane / 4);
        if (lane % 4 == 0 && q.seen.end != 0)
          p.part_ml[part_index(p, row_index, q.i, q.head, segment - row_first)] = {own[n].max, sum};
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const QueryRow q = pair(8 * n + 2 * (lane % 4) + e);
        if (q.seen.end == 0) continue;
        float* const to =
            p.part_out + part_index(p, row_index, q.i, q.head, segment - row_first) * p.dim;
        store_row(to, n, e, out, [](float x) { return x; });
      }
    }
    start_segment();
  }
  template <class F>
  __device__ void store_row(
      float* to, int n, int e, const float (&from)[S::kColumns][S::kGroups][4], F&& f) const {
#pragma unroll
    for (int k = 0; k < S::kColumns; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t d = column_of(k, half);
        if (d < p.dim) to[d] = f(from[k][n][e + 2 * half]);
      }
    }
  }

  // What all segments of the block's pairs came to.
  __device__ void finish() {
    auto* const ending = reinterpret_cast<float2*>(shared + at.ending);
    if (warp == kSumWarp) {
#pragma unroll
      for (int n = 0; n < S::kGroups; ++n) {
        const QueryRow q = pair(8 * n + lane / 4);
        const float keep = p.sinks ? add_sink(own_merged[n], p.sinks[q.head]) : 1.0f;
        if (lane % 4 == 0) ending[8 * n + lane / 4] = {keep, own_merged[n].sum};
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < S::kGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const std::uint32_t i = 8 * n + 2 * (lane % 4) + e;
        const QueryRow q = pair(i);
        if (q.seen.end == 0) continue;
        const float2 end = ending[i];
        store_row(p.out.row(q.token) + std::size_t{q.head} * p.dim, n, e, merged,
                  [&](float x) { return x * end.x / end.y; });
      }
    }
  }
};

}  // namespace kvasir::backend::cuda
