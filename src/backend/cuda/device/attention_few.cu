// Decode of rows in any form.
#include <algorithm>

#include "backend/cuda/device/few_walk.cuh"

namespace kvasir::backend::cuda {
namespace {

// f(shape, blocks a multiprocessor) of the kernel that serves rows of this form.
template <int kDim, bool kEncoded, class F>
auto with_shape_of(bool is_wide, F&& f) {
  if constexpr (kDim > 128) {
    return f(FewShape<kDim, kEncoded, 1, 128>{}, std::integral_constant < int,
             kEncoded ? 2 : 1 > {});
  } else {
    return is_wide ? f(FewShape<kDim, kEncoded, 1, 256>{}, std::integral_constant<int, 1>{})
                   : f(FewShape<kDim, kEncoded, 1, 128>{}, std::integral_constant < int,
                       kEncoded ? 4 : 3 > {});
  }
}
template <class F>
auto with_shape(const AttentionParams& p, bool is_wide, F&& f) {
  if (p.is_encoded != 0)
    return p.dim <= 64    ? with_shape_of<64, true>(is_wide, f)
           : p.dim <= 128 ? with_shape_of<128, true>(is_wide, f)
                          : with_shape_of<256, true>(is_wide, f);
  return p.dim <= 64    ? with_shape_of<64, false>(is_wide, f)
         : p.dim <= 128 ? with_shape_of<128, false>(is_wide, f)
                        : with_shape_of<256, false>(is_wide, f);
}

constexpr std::uint32_t kSharedBytes = 227 << 10;  // of a multiprocessor

}  // namespace

FewBlocks few_blocks_of(const AttentionParams& p) {
  if (takes_packed(p)) return packed_blocks_of(p);
  return with_shape(p, false, [&](auto shape, auto n_blocks) {
    using S = decltype(shape);
    const std::uint32_t fit = kSharedBytes / (FewLayout::of<S>(p).size + 1024);
    return FewBlocks{S::kPairs, std::clamp<std::uint32_t>(fit, 1, n_blocks.value)};
  });
}

void launch_attend_few(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  if (takes_packed(p)) return launch_attend_packed(queue, p, g);
  with_shape(p, g.is_wide, [&](auto shape, auto n_blocks) {
    using S = decltype(shape);
    const std::uint32_t n_groups =
        (g.most_new * (p.n_heads / p.n_kv_heads) + S::kPairs - 1) / S::kPairs;
    const FewLayout layout = FewLayout::of<S>(p);
    queue.launch_early(attend_few<S, AnyBlock, n_blocks.value>,
                       dim3(g.n_splits, p.n_kv_heads * n_groups, g.n_rows), S::kThreads,
                       layout.size, FewParams{p, layout});
  });
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
