// Decode of rows of one new token each, few enough that a block has a multiprocessor to itself: it
// makes its pairs' queries, and the token's key and value, on the way.
#include "backend/cuda/device/few_walk.cuh"

namespace kvasir::backend::cuda {
namespace {

template <int kDim>
using FreshShape = FewShape<kDim, false, 1, kSegment, 8>;
struct FreshParams {
  AttentionParams attention;
  FewLayout layout;
  QueryKeyParams prepare;
};
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    attend_fresh(const __grid_constant__ FreshParams params) {
  attend_block<S, true>(params.attention, params.layout, &params.prepare);
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KVASIR_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define KVASIR_CLUSTER(n)  // not launched
#endif
template <class S, int kCluster>
__global__ void KVASIR_CLUSTER(kCluster) __launch_bounds__(S::kThreads, 1)
    attend_joined(const __grid_constant__ FreshParams params) {
  attend_block<S, true, kCluster>(params.attention, params.layout, &params.prepare);
}

}  // namespace

void launch_attend_fresh(Queue& queue,
                         const AttentionParams& p,
                         const QueryKeyParams& prepare,
                         const AttentionGrid& g) {
  const auto launch = [&](auto shape) {
    using S = decltype(shape);
    const FewLayout layout = FewLayout::of<S>(p);
    const auto kernel = !g.is_joined      ? attend_fresh<S>
                        : g.n_splits == 2 ? attend_joined<S, 2>
                        : g.n_splits == 4 ? attend_joined<S, 4>
                                          : attend_joined<S, 8>;
    queue.launch_early(kernel, dim3(g.n_splits, p.n_kv_heads, g.n_rows), S::kThreads, layout.size,
                       FreshParams{p, layout, prepare});
  };
  p.dim == 64 ? launch(FreshShape<64>{}) : launch(FreshShape<128>{});
}

bool has_joined_attention() {
  static const bool is_there = [] {
    cudaFuncAttributes facts{};
    return cudaFuncGetAttributes(&facts, attend_joined<FreshShape<128>, 2>) == cudaSuccess &&
           facts.binaryVersion >= 90;
  }();
  return is_there;
}

bool takes_fresh_heads(const AttentionParams& p, const QueryKeyParams& prepare) {
  return takes_kept_heads(prepare) && p.is_encoded == 0 && p.n_heads / p.n_kv_heads <= 8 &&
         serves_tensor_cores(p);
}

}  // namespace kvasir::backend::cuda
