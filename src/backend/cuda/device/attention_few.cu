// Decode: at most 16 (query, head) pairs of one KV head a block, as the 16 rows of a product. Four
// warps share each tile: of the scores a warp has 16 keys, of the output a quarter of the columns.
// Every element's chain of additions is that of attention_many.cu, where a warp has all of them.
#include "backend/cuda/device/attention_tiles.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr std::uint32_t kPairs = 16;
constexpr std::uint32_t kWeightStride = 2 * kTile + 16;  // bytes of a row of probabilities

template <int kDim, bool kEncoded>
constexpr int kStages = kEncoded ? 4 : kDim == 64 ? 4 : 3;

// Shared memory: stages of fetched tiles; for encoded rows, the tile in use as elements;
// probabilities; maxima of the warps; centroids.
template <int kDim, bool kEncoded>
struct Layout {
  std::uint32_t stage_bytes, elements_at, weights_at, maxima_at, centroids_at, size;
  __host__ __device__ Layout(const KvSide& k, const KvSide& v) {
    stage_bytes = kEncoded ? kTile * (k.code_bytes + k.scale_bytes + k.offset_bytes +
                                      v.code_bytes + v.scale_bytes + v.offset_bytes)
                           : 2 * kTileBytes<kDim>;
    elements_at = kStages<kDim, kEncoded> * stage_bytes;
    weights_at = elements_at + (kEncoded ? 2 * kTileBytes<kDim> : 0);
    maxima_at = weights_at + kPairs * kWeightStride;
    centroids_at = maxima_at + kWarps * kPairs * 4;
    size = centroids_at + (kEncoded && v.kind == KvKind::turbo_values ? 1024 : 0);
  }
};

template <int kDim, bool kEncoded>
struct Block {
  static constexpr int kSteps = kDim / 16;           // of the scores' chain
  static constexpr int kColumns = kDim / kWarps / 8;  // output columns of a warp, in eights

  const AttentionParams& p;
  std::byte* shared;
  Layout<kDim, kEncoded> layout;
  TileSource source;
  QueryRow rows[2];
  std::uint32_t query[kSteps][4];
  float out[kColumns][4];
  Softmax softmax[2];
  std::uint32_t warp, lane;

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

  // Scores of the warp's 16 keys, in x; not visible: minus infinity.
  __device__ void find_scores(std::uint32_t keys, std::uint32_t tile, float (&x)[2][4]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0.0f;
    const std::uint32_t at = keys +
                             (16 * warp + lane / 16 * 8 + lane % 8) * kRowStride<kDim> +
                             lane / 8 % 2 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t b[4];
      load_matrices(b, at + 32 * step);
      multiply_add(x[0], query[step], b[0], b[1]);
      multiply_add(x[1], query[step], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::uint32_t key = tile + 16 * warp + 8 * n + lane % 4 * 2 + e % 2;
        const KeyRange& seen = rows[e / 2].seen;
        x[n][e] = key >= seen.begin && key < seen.end ? score_of(p, x[n][e]) : minus_infinity();
      }
    }
  }

  // Probabilities to shared memory; what the output so far is multiplied by.
  __device__ void find_weights(float (&x)[2][4], float (&keep)[2]) {
    auto* const maxima = reinterpret_cast<float*>(shared + layout.maxima_at);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float own = max_of_quad(
          fmaxf(fmaxf(x[0][2 * r], x[0][2 * r + 1]), fmaxf(x[1][2 * r], x[1][2 * r + 1])));
      if (lane % 4 == 0) maxima[warp * kPairs + lane / 4 + 8 * r] = own;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float max = minus_infinity();
#pragma unroll
      for (int w = 0; w < kWarps; ++w) max = fmaxf(max, maxima[w * kPairs + lane / 4 + 8 * r]);
      max = fmaxf(softmax[r].max, max * p.out_scale);
      const float reference = reference_of(max);
      keep[r] = exp2_of(softmax[r].max - reference);
      softmax[r].max = max;
      std::byte* const to =
          shared + layout.weights_at + (lane / 4 + 8 * r) * kWeightStride + 32 * warp;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float low = exp2_of(fmaf(x[n][2 * r], p.out_scale, -reference));
        const float high = exp2_of(fmaf(x[n][2 * r + 1], p.out_scale, -reference));
        *reinterpret_cast<std::uint32_t*>(to + 16 * n + lane % 4 * 4) = pack_bf16(low, high);
      }
    }
    __syncthreads();
  }

  __device__ void add_values(std::uint32_t values, const float (&keep)[2]) {
    std::uint32_t weights[kTile / 16][4];
    const std::uint32_t from = shared_address(shared) + layout.weights_at +
                               (lane / 8 % 2 * 8 + lane % 8) * kWeightStride + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < 4; ++step) load_matrices(weights[step], from + 32 * step);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = 0.0f;
#pragma unroll
      for (int step = 0; step < 4; ++step)
        sum = add_pair(add_pair(sum, weights[step][r]), weights[step][r + 2]);
      softmax[r].sum = fmaf(softmax[r].sum, keep[r], sum);
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      out[n][0] *= keep[0], out[n][1] *= keep[0];
      out[n][2] *= keep[1], out[n][3] *= keep[1];
    }
    const std::uint32_t at = values + (lane / 8 % 2 * 8 + lane % 8) * kRowStride<kDim> +
                             lane / 16 * 16 + warp * (2 * kDim / kWarps);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        std::uint32_t b[4];
        load_transposed(b, at + step * 16 * kRowStride<kDim> + 16 * n);
        multiply_add(out[n], weights[step], b[0], b[1]);
        multiply_add(out[n + 1], weights[step], b[2], b[3]);
      }
    }
  }

  __device__ void take_tile(std::uint32_t tile, std::uint32_t stage) {
    std::byte* elements = shared + stage * layout.stage_bytes;
    if constexpr (kEncoded) {
      const std::byte* const encoded = elements;
      elements = shared + layout.elements_at;
      expand_tile<PaddedRows<kDim>, kThreads>(
          source, tile, encoded, reinterpret_cast<const float*>(shared + layout.centroids_at),
          elements);
      __syncthreads();
    }
    float x[2][4], keep[2];
    const std::uint32_t keys = shared_address(elements);
    find_scores(keys, tile, x);
    find_weights(x, keep);
    add_values(keys + kTileBytes<kDim>, keep);
  }

  __device__ void store_segment(std::uint32_t segment) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_quad(softmax[r].sum);
      if (rows[r].seen.end == 0) continue;
      const std::size_t at = part_index(p, blockIdx.z, rows[r].i, rows[r].head, segment);
      if (warp == 0 && lane % 4 == 0) p.part_ml[at] = {softmax[r].max, sum};
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const std::uint32_t d = warp * (kDim / kWarps) + 8 * n + lane % 4 * 2;
        if (d >= p.dim) continue;
        *reinterpret_cast<float2*>(p.part_out + at * p.dim + d) = {out[n][2 * r],
                                                                   out[n][2 * r + 1]};
      }
    }
  }
};

template <int kDim, bool kEncoded>
__global__ void __launch_bounds__(kThreads, kDim <= 128 ? 2 : 1) attend_few(AttentionParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  constexpr int kDepth = kStages<kDim, kEncoded>;
  const KvRow row = p.rows[blockIdx.z];
  if (!serves(p, row)) return;
  const std::uint32_t kv_head = blockIdx.y % p.n_kv_heads, heads = p.n_heads / p.n_kv_heads,
                      m = blockIdx.y / p.n_kv_heads * kPairs;
  if (m >= row.n_new * heads) return;
  const KeyRange first_seen = keys_of(p, row, m / heads);
  const std::uint32_t last_query = min((m + kPairs - 1) / heads, row.n_new - 1);
  const std::uint32_t end = keys_of(p, row, last_query).end,
                      row_first = keys_of(p, row, 0).begin / kSegment,
                      first = first_seen.begin / kSegment + blockIdx.x,
                      last = (end - 1) / kSegment;
  if (first > last) return;
  const std::uint32_t lane = threadIdx.x % 32;
  Block<kDim, kEncoded> block{
      .p = p,
      .shared = shared,
      .layout = {p.k, p.v},
      .source = {p, row.blocks, kv_head, first_seen.begin, row.length + row.n_new},
      .rows = {query_row(p, row, kv_head, m + lane / 4), query_row(p, row, kv_head, m + lane / 4 + 8)},
      .warp = threadIdx.x / 32,
      .lane = lane};
  // Tiles of the block's segments, one list: number t is tile t % 4 of every gridDim.x-th segment.
  const std::uint32_t n_segments = (last - first) / gridDim.x + 1;
  const auto position_of = [&](std::uint32_t t) {
    return (first + t / 4 * gridDim.x) * kSegment + t % 4 * kTile;
  };
  const auto is_needed = [&](std::uint32_t t) {
    const std::uint32_t position = position_of(t);
    return t < 4 * n_segments && position < end && position + kTile > first_seen.begin;
  };
  if (p.dim < kDim) {
    clear<kThreads>(shared, kEncoded ? block.layout.weights_at : block.layout.elements_at);
    __syncthreads();
  }
  for (std::uint32_t t = 0; t < kDepth - 1; ++t) {
    if (is_needed(t)) block.fetch(position_of(t), t);
    commit_copies();
  }
  // While the first tiles are on their way:
#pragma unroll
  for (int step = 0; step < block.kSteps; ++step)
    load_query(p, block.rows, static_cast<std::uint32_t>(step), block.query[step]);
  if (kEncoded)
    load_centroids<kThreads>(p.v, reinterpret_cast<float*>(shared + block.layout.centroids_at));
  for (std::uint32_t t = 0; t < 4 * n_segments; ++t) {
    wait_for_copies<kDepth - 2>();
    __syncthreads();
    if (is_needed(t + kDepth - 1))
      block.fetch(position_of(t + kDepth - 1), (t + kDepth - 1) % kDepth);
    commit_copies();
    if (t % 4 == 0) block.start_segment();
    if (is_needed(t)) block.take_tile(position_of(t), t % kDepth);
    if (t % 4 == 3) block.store_segment(first + t / 4 * gridDim.x - row_first);
  }
}

template <int kDim>
void launch(Queue& queue, const AttentionParams& p, dim3 grid) {
  if (p.is_encoded != 0) {
    queue.launch(attend_few<kDim, true>, grid, kThreads, Layout<kDim, true>(p.k, p.v).size, p);
  } else {
    queue.launch(attend_few<kDim, false>, grid, kThreads, Layout<kDim, false>(p.k, p.v).size, p);
  }
}

}  // namespace

void launch_attend_few(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  const std::uint32_t heads = p.n_heads / p.n_kv_heads;
  const dim3 grid(g.n_splits, p.n_kv_heads * ((g.most_new * heads + kPairs - 1) / kPairs),
                  g.n_rows);
  p.dim <= 64    ? launch<64>(queue, p, grid)
  : p.dim <= 128 ? launch<128>(queue, p, grid)
                 : launch<256>(queue, p, grid);
}

bool serves_tensor_cores(const AttentionParams& p) {
  const auto is_known = [](const KvSide& side) {
    return side.kind == KvKind::exact ||
           side.scale_type == (side.kind == KvKind::affine ? Type::bf16 : Type::f16);
  };
  return p.rounds != 0 && p.dim % 16 == 0 && p.dim <= kLongestTensorRow && p.block_tokens >= 8 &&
         is_known(p.k) && is_known(p.v);
}

}  // namespace kvasir::backend::cuda
