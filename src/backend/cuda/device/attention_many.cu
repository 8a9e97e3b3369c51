// Prefill: 64 (query, head) pairs of one KV head a block, 16 a warp. A warp has whole rows: scores
// of 64 keys, probabilities and output stay in its registers; the merged output of finished
// segments lies in shared memory, a place a lane.
#include "backend/cuda/device/attention_tiles.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr std::uint32_t kPairs = 16 * kWarps;

template <int kDim>
constexpr int kStages = kDim > 128 ? 1 : 2;
template <int kDim>
constexpr bool kQueryInRegisters = kDim <= 128;

template <int kDim, bool kEncoded>
struct Layout {
  std::uint32_t stage_bytes, elements_at, merged_at, query_at, centroids_at, size;
  __host__ __device__ Layout(const KvSide& k, const KvSide& v) {
    stage_bytes = kEncoded ? kTile * (k.code_bytes + k.scale_bytes + k.offset_bytes + v.code_bytes +
                                      v.scale_bytes + v.offset_bytes)
                           : 2 * kTileBytes<kDim>;
    elements_at = kStages<kDim> * stage_bytes;
    merged_at = elements_at + (kEncoded ? 2 * kTileBytes<kDim> : 0);
    query_at = merged_at + kPairs * kDim * 4;
    centroids_at = query_at + (kQueryInRegisters<kDim> ? 0 : kThreads * kDim / 16 * 16);
    size = centroids_at + (kEncoded && v.kind == KvKind::turbo_values ? 1024 : 0);
  }
};

template <int kDim, bool kEncoded>
struct Block {
  static constexpr int kSteps = kDim / 16, kColumns = kDim / 8, kKeys = kTile / 8;

  const AttentionParams& p;
  std::byte* shared;
  Layout<kDim, kEncoded> layout;
  TileSource source;
  QueryRow rows[2];
  std::uint32_t lane;
  std::uint32_t query[kQueryInRegisters<kDim> ? kSteps : 1][4];
  float out[kColumns][4];
  Softmax softmax[2], merged[2];

  __device__ uint4* query_place(int step) {
    return reinterpret_cast<uint4*>(shared + layout.query_at) + step * kThreads + threadIdx.x;
  }
  __device__ float* merged_place(int n) {
    return reinterpret_cast<float*>(shared + layout.merged_at) + n * 4 * kThreads + threadIdx.x;
  }

  __device__ void start() {
    merged[0] = merged[1] = {minus_infinity(), 0.0f};
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      for (int e = 0; e < 4; ++e) merged_place(n)[e * kThreads] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kQueryInRegisters<kDim>) {
        load_query(p, rows, step, query[step]);
      } else {
        load_query(p, rows, step, query[0]);
        *query_place(step) = *reinterpret_cast<const uint4*>(query[0]);
      }
    }
    start_segment();
  }
  __device__ void start_segment() {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0.0f;
    softmax[0] = softmax[1] = {minus_infinity(), 0.0f};
  }

  __device__ void fetch(std::uint32_t tile, std::uint32_t stage) {
    const std::uint32_t to = shared_address(shared) + stage * layout.stage_bytes;
    if constexpr (kEncoded) {
      fetch_encoded<kThreads>(source, tile, to);
    } else {
      fetch_exact<PaddedRows<kDim>, kThreads>(source, tile, to);
    }
  }

  __device__ void find_scores(std::uint32_t keys, float (&x)[kKeys][4]) {
#pragma unroll
    for (int n = 0; n < kKeys; ++n) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0.0f;
    const std::uint32_t at =
        keys + (lane / 16 * 8 + lane % 8) * kRowStride<kDim> + lane / 8 % 2 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t(&a)[4] = query[kQueryInRegisters<kDim> ? step : 0];
      if constexpr (!kQueryInRegisters<kDim>) *reinterpret_cast<uint4*>(a) = *query_place(step);
#pragma unroll
      for (int n = 0; n < kKeys; n += 2) {
        std::uint32_t b[4];
        load_matrices(b, at + n * 8 * kRowStride<kDim> + 32 * step);
        multiply_add(x[n], a, b[0], b[1]);
        multiply_add(x[n + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ void mask(std::uint32_t tile, float (&x)[kKeys][4]) {
    if (p.has_softcap != 0) {
#pragma unroll
      for (int n = 0; n < kKeys; ++n)
        for (int e = 0; e < 4; ++e) x[n][e] = score_of(p, x[n][e]);
    }
    const bool all_seen = tile >= rows[0].seen.begin && tile + kTile <= rows[0].seen.end &&
                          tile >= rows[1].seen.begin && tile + kTile <= rows[1].seen.end;
    if (__all_sync(~0u, all_seen)) return;
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::uint32_t key = tile + 8 * n + lane % 4 * 2 + e % 2;
        const KeyRange& seen = rows[e / 2].seen;
        if (key < seen.begin || key >= seen.end) x[n][e] = minus_infinity();
      }
    }
  }

  // Scores to probabilities, in pairs: operand A of the values' product.
  __device__ void find_weights(float (&x)[kKeys][4], std::uint32_t (&weights)[kKeys / 2][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float max = minus_infinity();
#pragma unroll
      for (int n = 0; n < kKeys; ++n) max = fmaxf(max, fmaxf(x[n][2 * r], x[n][2 * r + 1]));
      max = fmaxf(softmax[r].max, max_of_quad(max) * p.out_scale);
      const float reference = reference_of(max), keep = exp2_of(softmax[r].max - reference);
      softmax[r].max = max;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        const float low = exp2_of(fmaf(x[n][2 * r], p.out_scale, -reference));
        const float high = exp2_of(fmaf(x[n][2 * r + 1], p.out_scale, -reference));
        const std::uint32_t pair = pack_bf16(low, high);
        sum = add_pair(sum, pair);
        weights[n / 2][n % 2 * 2 + r] = pair;
      }
      softmax[r].sum = fmaf(softmax[r].sum, keep, sum);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) out[n][2 * r] *= keep, out[n][2 * r + 1] *= keep;
    }
  }

  __device__ void add_values(std::uint32_t values, const std::uint32_t (&weights)[kKeys / 2][4]) {
    const std::uint32_t at =
        values + (lane / 8 % 2 * 8 + lane % 8) * kRowStride<kDim> + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kKeys / 2; ++step) {
#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        std::uint32_t b[4];
        load_transposed(b, at + step * 16 * kRowStride<kDim> + 16 * n);
        multiply_add(out[n], weights[step], b[0], b[1]);
        multiply_add(out[n + 1], weights[step], b[2], b[3]);
      }
    }
  }

  // A tile that none of the warp's rows sees changes nothing.
  __device__ void take_tile(std::uint32_t tile, std::uint32_t keys) {
    const auto sees = [&](const KeyRange& seen) {
      return tile < seen.end && tile + kTile > seen.begin;
    };
    if (!__any_sync(~0u, sees(rows[0].seen) || sees(rows[1].seen))) return;
    float x[kKeys][4];
    std::uint32_t weights[kKeys / 2][4];
    find_scores(keys, x);
    mask(tile, x);
    find_weights(x, weights);
    add_values(keys + kTileBytes<kDim>, weights);
  }

  __device__ void merge_segment(std::uint32_t segment) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      softmax[r].sum = sum_of_quad(softmax[r].sum);
      const KeyRange& seen = rows[r].seen;
      if (segment * kSegment >= seen.end || (segment + 1) * kSegment <= seen.begin) continue;
      const Merge m = merge(merged[r], softmax[r]);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          float& place = merged_place(n)[e * kThreads];
          place = fmaf(place, m.keep, out[n][e] * m.gain);
        }
      }
    }
    start_segment();
  }

  __device__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const QueryRow& q = rows[r];
      if (q.seen.end == 0) continue;
      const float keep = p.sinks ? add_sink(merged[r], p.sinks[q.head]) : 1.0f;
      float* const to = p.out.row(q.token) + std::size_t{q.head} * p.dim;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const std::uint32_t d = 8 * n + lane % 4 * 2;
        if (d >= p.dim) continue;
        to[d] = merged_place(n)[2 * r * kThreads] * keep / merged[r].sum;
        to[d + 1] = merged_place(n)[(2 * r + 1) * kThreads] * keep / merged[r].sum;
      }
    }
  }
};

template <int kDim, bool kEncoded>
__global__ void __launch_bounds__(kThreads, kDim <= 128 ? 2 : 1) attend_many(AttentionParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  const KvRow row = p.rows[blockIdx.z];
  if (!serves(p, row)) return;
  const std::uint32_t kv_head = blockIdx.y, heads = p.n_heads / p.n_kv_heads;
  const std::uint32_t m = (gridDim.x - 1 - blockIdx.x) * kPairs;  // the longest walks first
  if (m >= row.n_new * heads) return;
  const KeyRange first_seen = keys_of(p, row, m / heads);
  const std::uint32_t end = keys_of(p, row, min((m + kPairs - 1) / heads, row.n_new - 1)).end;
  const std::uint32_t lane = threadIdx.x % 32, own = m + threadIdx.x / 32 * 16 + lane / 4;
  Block<kDim, kEncoded> block{
      .p = p,
      .shared = shared,
      .layout = {p.k, p.v},
      .source = {p, row.blocks, kv_head, first_seen.begin, row.length + row.n_new},
      .rows = {query_row(p, row, kv_head, own), query_row(p, row, kv_head, own + 8)},
      .lane = lane};
  block.start();
  const Layout<kDim, kEncoded>& layout = block.layout;
  if (p.dim < kDim) clear<kThreads>(shared, layout.merged_at);
  const auto* const centroids = reinterpret_cast<const float*>(shared + layout.centroids_at);
  if (kEncoded) load_centroids<kThreads>(p.v, const_cast<float*>(centroids));
  __syncthreads();

  const std::uint32_t begin = first_seen.begin / kTile * kTile;
  constexpr bool kAhead = kStages<kDim> == 2;
  if (kAhead) block.fetch(begin, 0);
  commit_copies();
  std::uint32_t stage = 0;
  for (std::uint32_t tile = begin; tile < end; tile += kTile) {
    if (!kAhead) {
      __syncthreads();
      block.fetch(tile, 0);
      commit_copies();
    }
    wait_for_copies<0>();
    __syncthreads();
    if (kAhead && tile + kTile < end) block.fetch(tile + kTile, stage ^ 1);
    commit_copies();
    std::byte* elements = shared + stage * layout.stage_bytes;
    if constexpr (kEncoded) {
      expand_tile<PaddedRows<kDim>, kThreads>(block.source, tile, elements, centroids,
                                              shared + layout.elements_at);
      elements = shared + layout.elements_at;
      __syncthreads();
    }
    block.take_tile(tile, shared_address(elements));
    if (tile / kTile % (kSegment / kTile) == kSegment / kTile - 1 || tile + kTile >= end)
      block.merge_segment(tile / kSegment);
    if (kAhead) stage ^= 1;
  }
  block.finish();
}

template <int kDim>
void launch(Queue& queue, const AttentionParams& p, dim3 grid) {
  if (p.is_encoded != 0) {
    queue.launch(attend_many<kDim, true>, grid, kThreads, Layout<kDim, true>(p.k, p.v).size, p);
  } else {
    queue.launch(attend_many<kDim, false>, grid, kThreads, Layout<kDim, false>(p.k, p.v).size, p);
  }
}

}  // namespace

void launch_attend_many(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  const std::uint32_t heads = p.n_heads / p.n_kv_heads;
  const dim3 grid((g.most_new * heads + kPairs - 1) / kPairs, p.n_kv_heads, g.n_rows);
  p.dim <= 64    ? launch<64>(queue, p, grid)
  : p.dim <= 128 ? launch<128>(queue, p, grid)
                 : launch<256>(queue, p, grid);
}

}  // namespace kvasir::backend::cuda
