// Prefill on sm_90a: 128 (query, head) pairs of one KV head a block. Two warpgroups have 64 pairs
// each and multiply with wgmma, which adds as a chain of mma.sync does; a third one fetches tiles,
// and makes elements of encoded ones. What is added to what is as in attention_many.cu.
#include "backend/cuda/device/attention_tiles.cuh"
#include "backend/cuda/device/warpgroup.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr std::uint32_t kPairs = 128, kThreads = 3 * kGroup;

// Rows as wgmma reads them: columns of 64 elements, their 128 bytes swizzled by 16.
template <int kDim>
struct SwizzledRows {
  static constexpr int kElements = kDim;
  static constexpr std::uint32_t kBytes = kTile * kDim * 2;
  __device__ static std::uint32_t place(std::uint32_t row, std::uint32_t chunk) {
    return chunk / 8 * (kTile * 128) + row * 128 + ((chunk ^ row) % 8) * 16;
  }
};

template <int kDim, bool kEncoded>
struct Layout {
  static constexpr std::uint32_t kStages = kEncoded ? 2 : 3;
  static constexpr std::uint32_t kStageBytes = 2 * SwizzledRows<kDim>::kBytes;
  static constexpr std::uint32_t kQueryAt = kStages * kStageBytes;
  static constexpr std::uint32_t kMergedAt = kQueryAt + kPairs * kDim * 2;
  static constexpr std::uint32_t kBarriersAt = kMergedAt + kPairs * kDim * 4;
  static constexpr std::uint32_t kCentroidsAt = kBarriersAt + 64;
  static constexpr std::uint32_t kEncodedAt = kCentroidsAt + 1024;
  std::uint32_t encoded_bytes, size;
  __host__ __device__ Layout(const KvSide& k, const KvSide& v) {
    encoded_bytes = kTile * (k.code_bytes + k.scale_bytes + k.offset_bytes + v.code_bytes +
                             v.scale_bytes + v.offset_bytes);
    size = kEncoded ? kEncodedAt + 2 * encoded_bytes : kEncodedAt;
    size += 1024;  // to begin at a multiple of 1024
  }
};

struct Tiles {  // positions
  std::uint32_t begin, end;
};

template <int kDim, bool kEncoded>
__device__ void produce(const TileSource& source, Tiles tiles, std::byte* shared) {
  using L = Layout<kDim, kEncoded>;
  using Rows = SwizzledRows<kDim>;
  const L layout(source.p.k, source.p.v);
  const std::uint32_t thread = threadIdx.x % kGroup, base = shared_address(shared);
  const std::uint32_t full = base + L::kBarriersAt, empty = full + 8 * L::kStages;
  const auto* const centroids = reinterpret_cast<const float*>(shared + L::kCentroidsAt);
  const std::uint32_t n = (tiles.end - tiles.begin + kTile - 1) / kTile;
  const auto hand_over = [&](std::uint32_t t) {
    order_for_wgmma();
    arrive(full + 8 * (t % L::kStages));
  };
  const auto await_stage = [&](std::uint32_t t) {
    if (t >= L::kStages) wait(empty + 8 * (t % L::kStages), (t / L::kStages - 1) % 2);
  };
  if constexpr (kEncoded) {
    const std::uint32_t raw = base + L::kEncodedAt;
    const auto fetch = [&](std::uint32_t t) {
      if (t < n)
        fetch_encoded<kGroup>(source, tiles.begin + t * kTile, raw + t % 2 * layout.encoded_bytes,
                              thread);
      commit_copies();
    };
    fetch(0);
    for (std::uint32_t t = 0; t < n; ++t) {
      wait_for_copies<0>();
      wait_for_group(1);  // tile t is there, tile t - 1 was expanded
      fetch(t + 1);
      await_stage(t);
      expand_tile<Rows, kGroup>(source, tiles.begin + t * kTile,
                                shared + L::kEncodedAt + t % 2 * layout.encoded_bytes, centroids,
                                shared + t % L::kStages * L::kStageBytes, thread);
      hand_over(t);
    }
  } else {
    for (std::uint32_t t = 0; t < n; ++t) {
      await_stage(t);
      fetch_exact<Rows, kGroup>(source, tiles.begin + t * kTile,
                                base + t % L::kStages * L::kStageBytes, thread);
      commit_copies();
      if (t == 0) continue;
      wait_for_copies<1>();
      hand_over(t - 1);
    }
    wait_for_copies<0>();
    hand_over(n - 1);
  }
}

template <int kDim>
struct Consumer {
  static constexpr int kColumns = kDim / 8, kKeys = kTile / 8, kSteps = kDim / 16;

  const AttentionParams& p;
  std::byte* shared;
  float* merged_out;  // [kDim / 2] values a thread, kGroup · 2 apart
  QueryRow rows[2];
  std::uint32_t lane;
  float out[kColumns * 4];
  Softmax softmax[2], merged[2];

  __device__ float& merged_place(int i) { return merged_out[i * 2 * kGroup]; }

  __device__ void start_segment() {
#pragma unroll
    for (int i = 0; i < kColumns * 4; ++i) out[i] = 0.0f;
    softmax[0] = softmax[1] = {minus_infinity(), 0.0f};
  }

  __device__ void mask(std::uint32_t tile, float (&x)[kKeys * 4]) {
    if (p.has_softcap != 0) {
#pragma unroll
      for (int i = 0; i < kKeys * 4; ++i) x[i] = score_of(p, x[i]);
    }
    const bool all_seen = tile >= rows[0].seen.begin && tile + kTile <= rows[0].seen.end &&
                          tile >= rows[1].seen.begin && tile + kTile <= rows[1].seen.end;
    if (__all_sync(~0u, all_seen)) return;
#pragma unroll
    for (int i = 0; i < kKeys * 4; ++i) {
      const std::uint32_t key = tile + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const KeyRange& seen = rows[i / 2 % 2].seen;
      if (key < seen.begin || key >= seen.end) x[i] = minus_infinity();
    }
  }

  __device__ void find_weights(const float (&x)[kKeys * 4],
                               std::uint32_t (&weights)[kKeys / 2][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float max = minus_infinity();
#pragma unroll
      for (int n = 0; n < kKeys; ++n)
        max = fmaxf(max, fmaxf(x[4 * n + 2 * r], x[4 * n + 2 * r + 1]));
      max = fmaxf(softmax[r].max, max_of_quad(max) * p.out_scale);
      const float reference = reference_of(max), keep = exp2_of(softmax[r].max - reference);
      softmax[r].max = max;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeys; ++n) {
        const float low = exp2_of(fmaf(x[4 * n + 2 * r], p.out_scale, -reference));
        const float high = exp2_of(fmaf(x[4 * n + 2 * r + 1], p.out_scale, -reference));
        const std::uint32_t pair = pack_bf16(low, high);
        sum = add_pair(sum, pair);
        weights[n / 2][n % 2 * 2 + r] = pair;
      }
      softmax[r].sum = fmaf(softmax[r].sum, keep, sum);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) out[4 * n + 2 * r] *= keep, out[4 * n + 2 * r + 1] *= keep;
    }
  }

  // queries: the group's in shared memory; keys: the tile's, its values behind them.
  __device__ void take_tile(std::uint32_t tile, std::uint32_t queries, std::uint32_t keys) {
    float x[kKeys * 4];
    hold(x);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::uint32_t column = step / 4 * (kTile * 128) + step % 4 * 32;
      multiply_64x64(x, rows_of_k(queries + column), rows_of_k(keys + column), step > 0);
    }
    wgmma_commit();
    wgmma_wait();
    hold(x);
    mask(tile, x);
    std::uint32_t weights[kKeys / 2][4];
    find_weights(x, weights);
    hold(out);
    wgmma_fence();
    const std::uint32_t values = keys + SwizzledRows<kDim>::kBytes;
#pragma unroll
    for (int step = 0; step < kKeys / 2; ++step)
      multiply_by_values(out, weights[step], columns_of_n(values + step * 2048, kTile * 128));
    wgmma_commit();
    wgmma_wait();
    hold(out);
  }

  __device__ void merge_segment(std::uint32_t segment) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      softmax[r].sum = sum_of_quad(softmax[r].sum);
      const KeyRange& seen = rows[r].seen;
      if (segment * kSegment >= seen.end || (segment + 1) * kSegment <= seen.begin) continue;
      const Merge m = merge(merged[r], softmax[r]);
#pragma unroll
      for (int i = 0; i < kColumns * 4; ++i) {
        if (i / 2 % 2 != r) continue;
        merged_place(i) = fmaf(merged_place(i), m.keep, out[i] * m.gain);
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
        to[d] = merged_place(4 * n + 2 * r) * keep / merged[r].sum;
        to[d + 1] = merged_place(4 * n + 2 * r + 1) * keep / merged[r].sum;
      }
    }
  }
};

// The block's queries to shared memory, swizzled, 64 pairs after 64 pairs.
template <int kDim>
__device__ void load_queries(const AttentionParams& p,
                             const KvRow& row,
                             std::uint32_t kv_head,
                             std::uint32_t m,
                             std::byte* to) {
  for (std::uint32_t i = threadIdx.x; i < kPairs * kDim / 8; i += kThreads) {
    const std::uint32_t r = i / (kDim / 8), c = i % (kDim / 8);
    const QueryRow q = query_row(p, row, kv_head, m + r);
    const std::uint32_t at =
        r / kTile * SwizzledRows<kDim>::kBytes + SwizzledRows<kDim>::place(r % kTile, c);
    *reinterpret_cast<uint4*>(to + at) =
        uint4{query_pair(p, q, 8 * c), query_pair(p, q, 8 * c + 2), query_pair(p, q, 8 * c + 4),
              query_pair(p, q, 8 * c + 6)};
  }
}

template <int kDim, bool kEncoded>
__global__ void __launch_bounds__(kThreads, 1) attend_on_hopper(AttentionParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<kDim, kEncoded>;
  extern __shared__ std::byte raw[];
  std::byte* const shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const KvRow row = p.rows[blockIdx.z];
  if (!serves(p, row)) return;
  const std::uint32_t kv_head = blockIdx.y, heads = p.n_heads / p.n_kv_heads;
  const std::uint32_t m = (gridDim.x - 1 - blockIdx.x) * kPairs;  // the longest walks first
  if (m >= row.n_new * heads) return;
  const KeyRange first_seen = keys_of(p, row, m / heads);
  const Tiles tiles{first_seen.begin / kTile * kTile,
                    keys_of(p, row, min((m + kPairs - 1) / heads, row.n_new - 1)).end};
  const std::uint32_t base = shared_address(shared), group = threadIdx.x / kGroup;
  const std::uint32_t full = base + L::kBarriersAt, empty = full + 8 * L::kStages;
  if (threadIdx.x == 0) {
    for (std::uint32_t s = 0; s < L::kStages; ++s) {
      start_barrier(full + 8 * s, kGroup);
      start_barrier(empty + 8 * s, 2 * kGroup);
    }
  }
  if (p.dim < kDim) {
    for (std::uint32_t i = 16 * threadIdx.x; i < L::kQueryAt; i += 16 * kThreads)
      *reinterpret_cast<uint4*>(shared + i) = uint4{0, 0, 0, 0};
  }
  load_queries<kDim>(p, row, kv_head, m, shared + L::kQueryAt);
  if (kEncoded) load_centroids<kThreads>(p.v, reinterpret_cast<float*>(shared + L::kCentroidsAt));
  order_for_wgmma();
  __syncthreads();

  if (group == 2) {
    produce<kDim, kEncoded>({p, row.blocks, kv_head, first_seen.begin, row.length + row.n_new},
                            tiles, shared);
    return;
  }
  const std::uint32_t lane = threadIdx.x % 32, own = m + threadIdx.x / 32 * 16 + lane / 4;
  Consumer<kDim> consumer{
      .p = p,
      .shared = shared,
      .merged_out = reinterpret_cast<float*>(shared + L::kMergedAt) + threadIdx.x,
      .rows = {query_row(p, row, kv_head, own), query_row(p, row, kv_head, own + 8)},
      .lane = lane};
  consumer.merged[0] = consumer.merged[1] = {minus_infinity(), 0.0f};
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i) consumer.merged_place(i) = 0.0f;
  consumer.start_segment();
  const std::uint32_t queries = base + L::kQueryAt + group * SwizzledRows<kDim>::kBytes;
  std::uint32_t t = 0;
  for (std::uint32_t tile = tiles.begin; tile < tiles.end; tile += kTile, ++t) {
    const std::uint32_t stage = t % L::kStages;
    wait(full + 8 * stage, t / L::kStages % 2);
    consumer.take_tile(tile, queries, base + stage * L::kStageBytes);
    arrive(empty + 8 * stage);
    if (tile / kTile % (kSegment / kTile) == kSegment / kTile - 1 || tile + kTile >= tiles.end)
      consumer.merge_segment(tile / kSegment);
  }
  consumer.finish();
#endif
}

template <int kDim>
void launch(Queue& queue, const AttentionParams& p, dim3 grid) {
  if (p.is_encoded != 0) {
    queue.launch(attend_on_hopper<kDim, true>, grid, kThreads, Layout<kDim, true>(p.k, p.v).size,
                 p);
  } else {
    queue.launch(attend_on_hopper<kDim, false>, grid, kThreads, Layout<kDim, false>(p.k, p.v).size,
                 p);
  }
}

}  // namespace

bool serves_hopper(const AttentionParams& p) {
  static const bool is_there = [] {
    cudaFuncAttributes facts{};
    return KVASIR_CUDA_HAS_WGMMA != 0 &&
           cudaFuncGetAttributes(&facts, attend_on_hopper<128, false>) == cudaSuccess &&
           facts.binaryVersion == 90;
  }();
  return is_there && p.dim <= 128;
}

void launch_attend_on_hopper(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  const std::uint32_t heads = p.n_heads / p.n_kv_heads;
  const dim3 grid((g.most_new * heads + kPairs - 1) / kPairs, p.n_kv_heads, g.n_rows);
  p.dim <= 64 ? launch<64>(queue, p, grid) : launch<128>(queue, p, grid);
}

}  // namespace kvasir::backend::cuda
