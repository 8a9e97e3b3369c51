// Decode of rows of affine codes, 4 or 8 bits in groups of 64.
#include <algorithm>

#include "backend/cuda/device/few_packed.cuh"
#include "backend/cuda/device/few_walk.cuh"

namespace kvasir::backend::cuda {
namespace {

template <int kDim, int kBits>
using PackedShape = FewShape<kDim, true, 1, 128, 4, kBits>;
constexpr int kBlocks = 4;  // of a multiprocessor

template <class F>
auto with_shape(const AttentionParams& p, F&& f) {
  return p.dim == 64     ? f(PackedShape<64, 8>{})
         : p.k.bits == 8 ? f(PackedShape<128, 8>{})
                         : f(PackedShape<128, 4>{});
}

}  // namespace

bool takes_packed(const AttentionParams& p) {
  // A step's elements may be in any places, and pairs of bf16 multiply, from sm_90 on.
  static const bool is_there = [] {
    cudaFuncAttributes facts{};
    return cudaFuncGetAttributes(&facts, attend_few<PackedShape<128, 8>, PackedBlock, kBlocks>) ==
               cudaSuccess &&
           facts.binaryVersion >= 90;
  }();
  const auto is_packed = [&](const KvSide& side) {
    return side.kind == KvKind::affine && side.group == 64 && side.bits == p.k.bits;
  };
  return is_there && p.is_encoded != 0 && is_packed(p.k) && is_packed(p.v) &&
         p.block_tokens >= 32 &&
         (p.dim == 128 ? p.k.bits == 8 || p.k.bits == 4 : p.dim == 64 && p.k.bits == 8);
}

FewBlocks packed_blocks_of(const AttentionParams&) { return {8, kBlocks}; }

void launch_attend_packed(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  with_shape(p, [&](auto shape) {
    using S = decltype(shape);
    const std::uint32_t n_groups =
        (g.most_new * (p.n_heads / p.n_kv_heads) + S::kPairs - 1) / S::kPairs;
    const FewLayout layout = FewLayout::of<S>(p);
    queue.launch_early(attend_few<S, PackedBlock, kBlocks>,
                       dim3(g.n_splits, p.n_kv_heads * n_groups, g.n_rows), S::kThreads,
                       layout.size, FewParams{p, layout});
  });
}

}  // namespace kvasir::backend::cuda
