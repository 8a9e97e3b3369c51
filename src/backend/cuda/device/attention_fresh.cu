// Decode of rows of one new token each, a segment a block, where all blocks run at once. A block
// brings old keys and values before the kernels ahead have ended, makes its queries and, with the
// last segment, the token's key and value; a row's blocks of a KV head are a cluster and join what
// their segments came to.
#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/few_cluster.cuh"
#include "backend/cuda/device/few_fresh.cuh"

namespace kvasir::backend::cuda {
namespace {

template <int kDim>
using FreshShape = FewShape<kDim, false, 1, kSegment, 8>;
struct FreshParams {
  AttentionParams attention;
  FewLayout layout;
  QueryKeyParams prepare;
};

// A warp's rows of keys and values, but the new token's. Rows that are not there become zeros.
template <class S>
__device__ void fetch_old(const FewBlock<S>& block, std::uint32_t first) {
  constexpr std::uint32_t kChunks = S::kDim / 8, kRowsAtOnce = 32 / kChunks;
  const AttentionParams& p = block.p;
  const FewSource& source = block.source;
  const FewRuns<S> runs(source, first, block.lane);
  const int run_shift = 31 - __clz(static_cast<int>(runs.run_rows));
  const std::uint32_t c = block.lane % kChunks * 16, base = shared_address(block.shared);
#pragma unroll 4
  for (std::uint32_t r = block.lane / kChunks; r < S::kRows; r += kRowsAtOnce) {
    const std::uint32_t row =
                            __shfl_sync(~0u, runs.row, r >> run_shift) + (r & (runs.run_rows - 1)),
                        position = first + r, in_unit = block.warp * S::kRows + r;
    const bool is_old = position >= source.begin && position < source.n_old;
    if (position == source.n_old) continue;
    const std::size_t from = std::size_t{is_old ? row : 0} * (2 * S::kDim) + c;
    copy_16_async(base + block.at.k.codes + in_unit * block.at.k.stride + c, p.k.codes + from,
                  is_old);
    copy_16_async(base + block.at.v.codes + in_unit * block.at.v.stride + c, p.v.codes + from,
                  is_old);
  }
}

template <class S, int kBlocks>
__global__ void KVASIR_CLUSTER(kBlocks) __launch_bounds__(S::kThreads, 2)
    attend_fresh(const __grid_constant__ FreshParams params) {
  extern __shared__ __align__(16) std::byte shared[];
  const AttentionParams& p = params.attention;
  let_next_start();
  const KvRow row = p.rows[blockIdx.z];
  const KeyRange keys = keys_of(p, row, 0);
  const std::uint32_t heads = p.n_heads / p.n_kv_heads, first_segment = keys.begin / kSegment,
                      n_segments = row.length / kSegment + 1 - first_segment,
                      first = (first_segment + blockIdx.x) * kSegment;
  if (blockIdx.x >= n_segments) return await_previous();
  const FewSource source{p, row.blocks, blockIdx.y, keys.begin, row.length + 1, row.length};
  FewBlock<S> block{.p = p,
                    .at = params.layout,
                    .shared = shared,
                    .source = source,
                    .row = row,
                    .m = 0,
                    .warp = threadIdx.x / 32,
                    .lane = threadIdx.x % 32};
  const std::uint32_t own_first = first + block.warp * S::kRows;
  fetch_old(block, own_first);
  commit_copies();
  block.start_segment();
  for (int e = 0; e < 2; ++e)
    block.seen[0][e] = 2 * (block.lane % 4) + e < heads ? keys : KeyRange{0, 0};
  FreshHeads<S> fresh(params.prepare, block, heads);
  fresh.load_tables();
  await_previous();
  fresh.make(first);
  fresh.load_queries(block);
  wait_for_copies<0>();
  __syncwarp();
  typename FewBlock<S>::Scores x;
  float keep[S::kTiles][S::kGroups][2];
  block.find_scores(own_first, true, x);
  block.tell_maxima(x);
  __syncthreads();
  block.find_weights(x, keep);
  __syncthreads();
  block.add_values(first, keep);
  const ClusterParts<S> parts{block};
  parts.keep();
  kBlocks > 1 ? meet_cluster() : __syncthreads();
  parts.template join<kBlocks>(n_segments);
  if (kBlocks > 1) meet_cluster();  // what others read stays that long
}

}  // namespace

void launch_attend_fresh(Queue& queue,
                         const AttentionParams& p,
                         const QueryKeyParams& prepare,
                         const AttentionGrid& g) {
  const auto launch = [&](auto shape) {
    using S = decltype(shape);
    const FewLayout layout = FewLayout::of<S>(p);
    const auto kernel = g.n_splits == 1   ? attend_fresh<S, 1>
                        : g.n_splits == 2 ? attend_fresh<S, 2>
                        : g.n_splits == 4 ? attend_fresh<S, 4>
                                          : attend_fresh<S, 8>;
    queue.launch_early(kernel, dim3(g.n_splits, p.n_kv_heads, g.n_rows), S::kThreads, layout.size,
                       FreshParams{p, layout, prepare});
  };
  p.dim == 64 ? launch(FreshShape<64>{}) : launch(FreshShape<128>{});
}

bool takes_fresh_heads(const AttentionParams& p, const QueryKeyParams& prepare) {
  static const bool has_clusters = [] {
    cudaFuncAttributes facts{};
    return cudaFuncGetAttributes(&facts, attend_fresh<FreshShape<128>, 2>) == cudaSuccess &&
           facts.binaryVersion >= 90;
  }();
  return has_clusters && takes_kept_heads(prepare) && p.is_encoded == 0 && p.has_softcap == 0 &&
         p.n_heads / p.n_kv_heads <= 8 && p.max_segments <= 8 && serves_tensor_cores(p);
}

}  // namespace kvasir::backend::cuda
