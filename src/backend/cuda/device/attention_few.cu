// Decode: at most 16 (query, head) pairs of one KV head a block, as the 16 rows of a product. Eight
// warps share each tile: of the scores a warp has 8 keys, of the output an eighth of the columns.
// Every element's chain of additions is that of attention_many.cu, where a warp has all of them.
#include "backend/cuda/device/attention_tiles.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr std::uint32_t kPairs = 16;
constexpr std::uint32_t kWeightStride = 2 * kTile + 16;  // bytes of a row of probabilities

template <int kDim>
constexpr int kExactStages = kDim == 64 ? 4 : 3;

// Shared memory: tiles as elements, as many as are in flight, or of encoded rows the one that is
// made; probabilities; maxima of the warps; of encoded rows the queries, for which registers are
// short, and centroids.
template <int kDim, bool kEncoded>
struct Layout {
  static constexpr int kStages = kEncoded ? 1 : kExactStages<kDim>;
  static constexpr std::uint32_t kStageBytes = 2 * kTileBytes<kDim>;
  static constexpr std::uint32_t kWeightsAt = kStages * kStageBytes;
  static constexpr std::uint32_t kMaximaAt = kWeightsAt + kPairs * kWeightStride;
  static constexpr std::uint32_t kQueryAt = kMaximaAt + kWarps * kPairs * 4;
  static constexpr std::uint32_t kCentroidsAt = kQueryAt + kPairs * kRowStride<kDim>;
  static constexpr std::uint32_t kBytes = kEncoded ? kCentroidsAt + 1024 : kQueryAt;
};

// Blocks that a multiprocessor shall hold.
template <int kDim, bool kEncoded>
constexpr int kBlocks = kDim > 128 ? 1
                        : kEncoded ? 3
                                   : 2;

// Pieces of an encoded tile on their way in registers: of keys, then of values.
template <int kDim>
struct Pieces {
  static constexpr int kCount = kDim / 64;
  static constexpr std::uint32_t kChunks = kDim / 32;
  Piece pieces[kCount];

  struct Place {
    std::uint32_t r, c;
    bool is_value;
  };
  __device__ static Place place_of(int j) {
    const std::uint32_t i = (threadIdx.x + kThreads * static_cast<std::uint32_t>(j)) % (2 * kDim);
    return {i / kChunks, i % kChunks, kDim == 64 ? threadIdx.x >= kThreads / 2 : j >= kCount / 2};
  }
  __device__ void fetch(const TileSource& source, std::uint32_t tile) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const Place at = place_of(j);
      const std::uint32_t position = tile + at.r;
      if (32 * at.c >= source.p.dim || position < source.begin || position >= source.end) continue;
      const KvSide& side = at.is_value ? source.p.v : source.p.k;
      load_piece(pieces[j], side, side.codes, side.scales, side.offsets, source.index(position),
                 at.c);
    }
  }
  __device__ void expand(const TileSource& source,
                         std::uint32_t tile,
                         const float* centroids,
                         std::byte* to) const {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const Place at = place_of(j);
      const std::uint32_t position = tile + at.r;
      if (32 * at.c >= source.p.dim) continue;
      std::byte* const rows = at.is_value ? to + kTileBytes<kDim> : to;
      if (position < source.begin || position >= source.end) {
        store_zeros<PaddedRows<kDim>>(rows, at.r, at.c);
        continue;
      }
      with_codec(at.is_value ? source.p.v : source.p.k, [&](auto kind, auto bits) {
        store_piece<PaddedRows<kDim>, kind.value, bits.value>(pieces[j], centroids, rows, at.r,
                                                              at.c);
      });
    }
  }
};

template <int kDim, bool kEncoded>
struct Block {
  using L = Layout<kDim, kEncoded>;
  static constexpr int kSteps = kDim / 16;            // of the scores' chain
  static constexpr int kColumns = kDim / kWarps / 8;  // output columns of a warp, in eights

  const AttentionParams& p;
  std::byte* shared;
  TileSource source;
  QueryRow rows[2];
  std::uint32_t warp, lane;
  std::uint32_t n_halves;  // of the 16 rows: 1 where all pairs are among the first 8
  std::uint32_t query[kEncoded ? 1 : kSteps][4];
  float out[kColumns][4];
  Softmax softmax[2];

  __device__ void load_queries() {
    if constexpr (kEncoded) {
      std::byte* const to = shared + L::kQueryAt + lane / 4 * kRowStride<kDim> + lane % 4 * 4;
      for (std::uint32_t step = warp; step < kSteps; step += kWarps) {
        std::uint32_t a[4];
        load_query(p, rows, step, a);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          *reinterpret_cast<std::uint32_t*>(to + i % 2 * 8 * kRowStride<kDim> + 32 * step +
                                            i / 2 * 16) = a[i];
      }
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        load_query(p, rows, static_cast<std::uint32_t>(step), query[step]);
    }
  }
  __device__ const std::uint32_t (&query_of(int step))[4] {
    if constexpr (kEncoded) {
      load_matrices(query[0], shared_address(shared) + L::kQueryAt +
                                  (lane / 8 % 2 * 8 + lane % 8) * kRowStride<kDim> +
                                  lane / 16 * 16 + 32 * static_cast<std::uint32_t>(step));
      return query[0];
    } else {
      return query[step];
    }
  }

  __device__ void start_segment() {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0.0f;
    softmax[0] = softmax[1] = {minus_infinity(), 0.0f};
  }

  // Scores of the warp's 8 keys, in x; not visible: minus infinity.
  __device__ void find_scores(std::uint32_t keys, std::uint32_t tile, float (&x)[4]) {
    x[0] = x[1] = x[2] = x[3] = 0.0f;
    const std::uint32_t at = keys + (8 * warp + lane % 8) * kRowStride<kDim> + lane / 8 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      std::uint32_t b[4];
      load_matrices(b, at + 32 * step);
      multiply_add(x, query_of(step), b[0], b[1]);
      multiply_add(x, query_of(step + 1), b[2], b[3]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const std::uint32_t key = tile + 8 * warp + lane % 4 * 2 + e % 2;
      const KeyRange& seen = rows[e / 2].seen;
      x[e] = key >= seen.begin && key < seen.end ? score_of(p, x[e]) : minus_infinity();
    }
  }

  // Probabilities to shared memory; what the output so far is multiplied by.
  __device__ void find_weights(const float (&x)[4], float (&keep)[2]) {
    auto* const maxima = reinterpret_cast<float*>(shared + L::kMaximaAt);
    keep[1] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (static_cast<std::uint32_t>(r) >= n_halves) break;
      const float own = max_of_quad(fmaxf(x[2 * r], x[2 * r + 1]));
      if (lane % 4 == 0) maxima[(lane / 4 + 8 * r) * kWarps + warp] = own;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (static_cast<std::uint32_t>(r) >= n_halves) break;
      const auto* const row = reinterpret_cast<const float4*>(maxima + (lane / 4 + 8 * r) * kWarps);
      const float4 a = row[0], b = row[1];
      float max =
          fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
      max = fmaxf(softmax[r].max, max * p.out_scale);
      const float reference = reference_of(max);
      keep[r] = exp2_of(softmax[r].max - reference);
      softmax[r].max = max;
      const float low = exp2_of(fmaf(x[2 * r], p.out_scale, -reference));
      const float high = exp2_of(fmaf(x[2 * r + 1], p.out_scale, -reference));
      std::byte* const to = shared + L::kWeightsAt + (lane / 4 + 8 * r) * kWeightStride + 16 * warp;
      *reinterpret_cast<std::uint32_t*>(to + lane % 4 * 4) = pack_bf16(low, high);
    }
    __syncthreads();
  }

  __device__ void add_sums(const std::uint32_t (&weights)[kTile / 16][4], const float (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (static_cast<std::uint32_t>(r) >= n_halves) break;
      float sum = 0.0f;
#pragma unroll
      for (int step = 0; step < 4; ++step)
        sum = add_pair(add_pair(sum, weights[step][r]), weights[step][r + 2]);
      softmax[r].sum = fmaf(softmax[r].sum, keep[r], sum);
    }
  }

  __device__ void add_values(std::uint32_t values, const float (&keep)[2]) {
    std::uint32_t weights[kTile / 16][4];
    const std::uint32_t from = shared_address(shared) + L::kWeightsAt +
                               (lane / 8 % 2 * 8 + lane % 8) * kWeightStride + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < 4; ++step) load_matrices(weights[step], from + 32 * step);
    if (warp == 0) add_sums(weights, keep);  // the others need none
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      out[n][0] *= keep[0], out[n][1] *= keep[0];
      out[n][2] *= keep[1], out[n][3] *= keep[1];
    }
    const std::uint32_t column = values + warp * (2 * kDim / kWarps);
    if constexpr (kColumns == 1) {  // of the 64 keys 32 at a time
      const std::uint32_t at = column + lane * kRowStride<kDim>;
#pragma unroll
      for (int step = 0; step < 4; step += 2) {
        std::uint32_t b[4];
        load_transposed(b, at + step * 16 * kRowStride<kDim>);
        multiply_add(out[0], weights[step], b[0], b[1]);
        multiply_add(out[0], weights[step + 1], b[2], b[3]);
      }
    } else {
      const std::uint32_t at =
          column + (lane / 8 % 2 * 8 + lane % 8) * kRowStride<kDim> + lane / 16 * 16;
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
  }

  __device__ void take_tile(std::uint32_t tile, std::uint32_t stage) {
    float x[4], keep[2];
    const std::uint32_t keys = shared_address(shared) + stage * L::kStageBytes;
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

// Tiles of a block's segments, one list: number t is tile t % 4 of every step-th segment.
struct TileList {
  std::uint32_t first, step, n_segments, begin, end;
  __device__ std::uint32_t segment(std::uint32_t t) const { return first + t / 4 * step; }
  __device__ std::uint32_t position(std::uint32_t t) const {
    return segment(t) * kSegment + t % 4 * kTile;
  }
  __device__ bool has(std::uint32_t t) const {
    return t < 4 * n_segments && position(t) < end && position(t) + kTile > begin;
  }
};

template <int kDim, class B>
__device__ void walk_exact(B& block, const TileList& tiles, std::uint32_t row_first) {
  constexpr int kDepth = B::L::kStages;
  const auto fetch = [&](std::uint32_t t) {
    if (tiles.has(t))
      fetch_exact<PaddedRows<kDim>, kThreads>(
          block.source, tiles.position(t),
          shared_address(block.shared) + t % kDepth * B::L::kStageBytes);
    commit_copies();
  };
  for (std::uint32_t t = 0; t < kDepth - 1; ++t) fetch(t);
  block.load_queries();  // while the first tiles are on their way
  for (std::uint32_t t = 0; t < 4 * tiles.n_segments; ++t) {
    wait_for_copies<kDepth - 2>();
    __syncthreads();
    fetch(t + kDepth - 1);
    if (t % 4 == 0) block.start_segment();
    if (tiles.has(t)) block.take_tile(tiles.position(t), t % kDepth);
    if (t % 4 == 3) block.store_segment(tiles.segment(t) - row_first);
  }
}

// A tile's elements are made while the next one's codes are on their way.
template <int kDim, class B>
__device__ void walk_encoded(B& block, const TileList& tiles, std::uint32_t row_first) {
  auto* const centroids = reinterpret_cast<float*>(block.shared + B::L::kCentroidsAt);
  Pieces<kDim> pieces;
  if (tiles.has(0)) pieces.fetch(block.source, tiles.position(0));
  load_centroids<kThreads>(block.p.v, centroids);
  block.load_queries();
  for (std::uint32_t t = 0; t < 4 * tiles.n_segments; ++t) {
    __syncthreads();  // the last tile's elements have been used
    if (tiles.has(t)) pieces.expand(block.source, tiles.position(t), centroids, block.shared);
    if (tiles.has(t + 1)) pieces.fetch(block.source, tiles.position(t + 1));
    if (t % 4 == 0) block.start_segment();
    if (tiles.has(t)) {
      __syncthreads();
      block.take_tile(tiles.position(t), 0);
    }
    if (t % 4 == 3) block.store_segment(tiles.segment(t) - row_first);
  }
}

template <int kDim, bool kEncoded>
__global__ void __launch_bounds__(kThreads, kBlocks<kDim, kEncoded>) attend_few(AttentionParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  const KvRow row = p.rows[blockIdx.z];
  if (!serves(p, row)) return;
  const std::uint32_t kv_head = blockIdx.y % p.n_kv_heads, heads = p.n_heads / p.n_kv_heads,
                      m = blockIdx.y / p.n_kv_heads * kPairs;
  if (m >= row.n_new * heads) return;
  const KeyRange first_seen = keys_of(p, row, m / heads);
  const std::uint32_t end = keys_of(p, row, min((m + kPairs - 1) / heads, row.n_new - 1)).end,
                      row_first = keys_of(p, row, 0).begin / kSegment,
                      first = first_seen.begin / kSegment + blockIdx.x, last = (end - 1) / kSegment;
  if (first > last) return;
  const std::uint32_t lane = threadIdx.x % 32;
  Block<kDim, kEncoded> block{
      .p = p,
      .shared = shared,
      .source = {p, row.blocks, kv_head, first_seen.begin, row.length + row.n_new},
      .rows = {query_row(p, row, kv_head, m + lane / 4),
               query_row(p, row, kv_head, m + lane / 4 + 8)},
      .warp = threadIdx.x / 32,
      .lane = lane,
      .n_halves = row.n_new * heads - m > 8 ? 2u : 1u};
  if (p.dim < kDim) {
    clear<kThreads>(shared, Layout<kDim, kEncoded>::kWeightsAt);
    __syncthreads();
  }
  const TileList tiles{first, gridDim.x, (last - first) / gridDim.x + 1, first_seen.begin, end};
  if constexpr (kEncoded) {
    walk_encoded<kDim>(block, tiles, row_first);
  } else {
    walk_exact<kDim>(block, tiles, row_first);
  }
}

template <int kDim>
void launch(Queue& queue, const AttentionParams& p, dim3 grid) {
  if (p.is_encoded != 0) {
    queue.launch(attend_few<kDim, true>, grid, kThreads, Layout<kDim, true>::kBytes, p);
  } else {
    queue.launch(attend_few<kDim, false>, grid, kThreads, Layout<kDim, false>::kBytes, p);
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
