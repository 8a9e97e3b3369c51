// Decode of rows of one new token each, where all blocks run at once: a row's blocks of a KV head
// are a cluster, whose blocks take its segments in turn and join what these came to. A block brings
// its first segment's keys and values before the kernels ahead have ended and makes its queries;
// the one that has the last segment makes the token's key and value.
#include <algorithm>
#include <array>

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/few_cluster.cuh"
#include "backend/cuda/device/few_fresh.cuh"

namespace kvasir::backend::cuda {
namespace {

template <int kDim>
using FreshShape = FewShape<kDim, false, 1, kSegment, 8>;
constexpr std::uint32_t kHelperWarps = 4;  // behind a shape's warps: they bring keys and values
template <class S>
constexpr unsigned kThreads = S::kThreads + 32 * kHelperWarps;
constexpr std::uint32_t kMostBlocks = 16;  // of a cluster

struct FreshParams {
  AttentionParams attention;
  FewLayout layout;
  QueryKeyParams prepare;
};
// Shared memory behind that of FewLayout: barriers, the token's heads, what blocks send.
template <class S>
struct FreshLayout {
  std::uint32_t barriers, heads, joined, size;

  __host__ __device__ FreshLayout(const AttentionParams& p,
                                  const FewLayout& layout,
                                  std::uint32_t n_blocks)
      : barriers(layout.size),
        heads(barriers + 32),
        joined(heads + FreshHeads<S>::kBytes),
        size(joined + ClusterJoin<S>::size_bytes(p, n_blocks)) {}
};

// A unit's keys, or values: they are there, or have been used and their place is free.
struct FreshBarriers {
  std::uint32_t at;
  __device__ std::uint32_t filled(bool is_value) const { return at + (is_value ? 8 : 0); }
  __device__ std::uint32_t used(bool is_value) const { return at + (is_value ? 24 : 16); }
  // Before a barrier of the block.
  template <class S>
  __device__ void make() const {
    for (const bool is_value : {false, true}) {
      make_barrier(filled(is_value), 32 * kHelperWarps);
      make_barrier(used(is_value), S::kWarps);
    }
  }
};

// What the helpers do: keys and values of a unit as soon as those of the one before have been used,
// the first ones at once. All rows are old but the last, the token's.
template <class S>
__device__ void bring_units(const FewSource& source,
                            const FewLayout& at,
                            std::uint32_t shared,
                            const UnitList<S>& units,
                            const FreshBarriers& barriers) {
  constexpr std::uint32_t kTurns = S::kWarps / kHelperWarps;
  const AttentionParams& p = source.p;
  const std::uint32_t helper = threadIdx.x / 32 - S::kWarps, lane = threadIdx.x % 32;
  for (std::uint32_t u = units.begin; u < units.end; ++u) {
    const auto runs_of = [&](std::uint32_t turn) {
      return FewRuns<S>(source, units.position(u) + (helper + turn * kHelperWarps) * S::kRows,
                        lane);
    };
    static_assert(kTurns == 2);
    const FewRuns<S> runs[kTurns] = {runs_of(0), runs_of(1)};
    for (const bool is_value : {false, true}) {
      const KvSide& side = is_value ? p.v : p.k;
      const FewSideLayout& to = is_value ? at.v : at.k;
      if (u > units.begin) await_phase(barriers.used(is_value), (u - units.begin - 1) % 2);
#pragma unroll
      for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
        const FewRuns<S>& own = runs[turn];
        const std::uint32_t warp = helper + turn * kHelperWarps;
        const bool is_whole = p.block_tokens >= S::kRows && own.first >= source.begin &&
                              own.first + S::kRows <= source.n_old;
        if (is_whole) {
          copy_whole_rows<S, 2 * S::kDim>(side.codes, __shfl_sync(~0u, own.row_of(source, lane), 0),
                                          shared + to.codes, warp, lane);
        } else {
          own.template fetch<FewPart::old>(source, side, to, shared, warp, lane);
        }
      }
      arrive_with_copies(barriers.filled(is_value));
    }
  }
}

// What a block's other warps do with them.
template <class S, class SendOutputs, class SendSums>
__device__ void walk_fresh(FewBlock<S>& block,
                           const FreshHeads<S>& fresh,
                           const UnitList<S>& units,
                           const FreshBarriers& barriers,
                           SendOutputs&& send_outputs,
                           SendSums&& send_sums) {
  const std::uint32_t token = block.row.length;
  const auto tell_used = [&](bool is_value) {
    __syncwarp();
    if (block.lane == 0) arrive_at(barriers.used(is_value));
  };
  block.start_segment();
  for (std::uint32_t u = units.begin; u < units.end; ++u) {
    const std::uint32_t first = units.position(u), parity = (u - units.begin) % 2;
    const bool has_token = first + S::kUnit > token, ends_segment = units.ends_segment(u);
    typename FewBlock<S>::Scores x;
    float keep[S::kTiles][S::kGroups][2];
    await_phase(barriers.filled(false), parity);
    if (has_token) fresh.put(HeadKind::key, token - first);
    __syncwarp();
    block.find_scores(first + block.warp * S::kRows, true, x);
    tell_used(false);
    block.tell_maxima(x);
    meet_threads<S::kThreads>();
    block.find_weights(x, keep);
    if (has_token) fresh.put(HeadKind::value, token - first);
    await_phase(barriers.filled(true), parity);
    meet_threads<S::kThreads>();
    block.find_sums(first);
    block.add_values(first, keep);
    tell_used(true);
    if (ends_segment) send_outputs(units.segment(u));
    meet_threads<S::kThreads>();
    block.end_sums();
    if (!ends_segment) continue;
    send_sums(units.segment(u));
    block.start_segment();
  }
}

template <class S, int kBlocks>
__global__ void KVASIR_CLUSTER(kBlocks) __launch_bounds__(kThreads<S>, 1)
    attend_fresh(const __grid_constant__ FreshParams params) {
  extern __shared__ __align__(16) std::byte shared[];
  const AttentionParams& p = params.attention;
  let_next_start();
  const KvRow row = p.rows[blockIdx.z];
  const KeyRange keys = keys_of(p, row, 0);
  const std::uint32_t heads = p.n_heads / p.n_kv_heads, first_segment = keys.begin / kSegment,
                      n_segments = row.length / kSegment + 1 - first_segment;
  if (blockIdx.x >= n_segments) {
    tell_cluster();
    await_cluster();
    return await_previous();
  }
  const FreshLayout<S> layout(p, params.layout, kBlocks);
  const FewSource source{p, row.blocks, blockIdx.y, keys.begin, row.length + 1, row.length};
  FewBlock<S> block{.p = p,
                    .at = params.layout,
                    .shared = shared,
                    .source = source,
                    .row = row,
                    .m = 0,
                    .warp = threadIdx.x / 32,
                    .lane = threadIdx.x % 32};
  const ClusterJoin<S> join(block, layout.joined, kBlocks, n_segments);
  const FreshBarriers barriers{shared_address(shared) + layout.barriers};
  if (threadIdx.x == 0) barriers.make<S>();
  join.expect();
  __syncthreads();
  tell_cluster();
  const UnitList<S> units(first_segment + blockIdx.x, first_segment + n_segments - 1, kBlocks,
                          keys);
  if (block.warp >= S::kWarps) {
    bring_units<S>(source, params.layout, shared_address(shared), units, barriers);
    return await_cluster();
  }
  for (int e = 0; e < 2; ++e)
    block.seen[0][e] = 2 * (block.lane % 4) + e < heads ? keys : KeyRange{0, 0};
  const bool has_token = (n_segments - 1) % kBlocks == blockIdx.x;
  FreshHeads<S> fresh(params.prepare, block, heads, has_token, layout.heads);
  fresh.load_tables();
  await_previous();
  fresh.make();
  fresh.load_queries(block);
  await_cluster();
  walk_fresh(
      block, fresh, units, barriers,
      [&](std::uint32_t segment) { join.send_outputs(segment - first_segment); },
      [&](std::uint32_t segment) { join.send_sums(segment - first_segment); });
  join.join();
}

// f(kernel, blocks of a cluster) for each number of blocks that there is.
template <class S, class F>
void for_each_cluster(F&& f) {
  f(attend_fresh<S, 1>, 1u);
  f(attend_fresh<S, 2>, 2u);
  f(attend_fresh<S, 4>, 4u);
  f(attend_fresh<S, 8>, 8u);
  f(attend_fresh<S, 16>, 16u);
}
template <class F>
auto with_shape(const AttentionParams& p, F&& f) {
  return p.dim == 64 ? f(FreshShape<64>{}) : f(FreshShape<128>{});
}

constexpr std::uint32_t kSharedBytes = 227 << 10;  // of a block, at most

// How many clusters of n_blocks blocks the GPU holds at once.
template <class S>
std::uint32_t clusters_of(std::uint32_t n_blocks) {
  static const auto found = [] {
    std::array<std::uint32_t, 17> out{};
    for_each_cluster<S>([&](auto kernel, std::uint32_t n) {
      cudaLaunchAttribute cluster{};
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {n, 1, 1};
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(n, 256);
      config.blockDim = dim3(kThreads<S>);
      config.dynamicSmemBytes = kSharedBytes;
      config.attrs = &cluster;
      config.numAttrs = 1;
      int most = 0;
      const bool is_found =
          !cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) &&
          !cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kSharedBytes) &&
          !cudaOccupancyMaxActiveClusters(&most, kernel, &config);
      out[n] = is_found ? static_cast<std::uint32_t>(most) : 0;
    });
    cudaGetLastError();
    return out;
  }();
  return found[n_blocks];
}

bool has_clusters() {
  static const bool is_there = [] {
    cudaFuncAttributes facts{};
    return cudaFuncGetAttributes(&facts, attend_fresh<FreshShape<128>, 2>) == cudaSuccess &&
           facts.binaryVersion >= 90;
  }();
  return is_there;
}

}  // namespace

void launch_attend_fresh(Queue& queue,
                         const AttentionParams& p,
                         const QueryKeyParams& prepare,
                         const AttentionGrid& g) {
  with_shape(p, [&](auto shape) {
    using S = decltype(shape);
    const FewLayout layout = FewLayout::of<S>(p);
    for_each_cluster<S>([&](auto kernel, std::uint32_t n_blocks) {
      if (n_blocks == g.n_splits)
        queue.launch_early(kernel, dim3(n_blocks, p.n_kv_heads, g.n_rows), kThreads<S>,
                           FreshLayout<S>(p, layout, n_blocks).size,
                           FreshParams{p, layout, prepare});
    });
  });
}

std::uint32_t fresh_splits_of(const AttentionParams& p,
                              const QueryKeyParams& prepare,
                              std::uint32_t n_rows,
                              std::uint32_t n_multiprocessors) {
  if (!has_clusters() || !takes_kept_heads(prepare) || p.is_encoded != 0 || p.has_softcap != 0 ||
      p.n_heads / p.n_kv_heads > 8 || !serves_tensor_cores(p))
    return 0;
  return with_shape(p, [&](auto shape) {
    using S = decltype(shape);
    const std::uint32_t n_walks = p.n_kv_heads * n_rows;
    std::uint32_t n = std::min(p.max_segments, kMostBlocks);
    while (n > 0 && n_walks > clusters_of<S>(n)) n /= 2;
    // Long rows want the whole GPU, which clusters do not always fill.
    const bool fills = 4 * n * n_walks >= 3 * n_multiprocessors;
    if (n == 0 || (!fills && p.max_segments > 8 * n)) return 0u;
    return FreshLayout<S>(p, FewLayout::of<S>(p), n).size <= kSharedBytes ? n : 0u;
  });
}

}  // namespace kvasir::backend::cuda
