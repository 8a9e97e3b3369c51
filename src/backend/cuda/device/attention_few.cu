// Decode: some (query, head) pairs of one KV head a block, over all segments of their row or some
// of them. Rows of KV state come to shared memory by whole units, keys and values apart, each when
// the ones before have been used.
#include <algorithm>

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/combine.cuh"
#include "backend/cuda/device/few_block.cuh"

namespace kvasir::backend::cuda {
namespace {

// The block's units, one list: of every step-th segment the units that have keys.
template <class S>
struct UnitList {
  std::uint32_t first, step, begin, end;  // begin, end: numbers of units

  __device__ UnitList(std::uint32_t first_segment,
                      std::uint32_t last_segment,
                      std::uint32_t step_of,
                      KeyRange keys)
      : first(first_segment), step(step_of) {
    const std::uint32_t n = (last_segment - first) / step, from = first * kSegment,
                        last = (first + n * step) * kSegment;
    begin = keys.begin > from ? (keys.begin - from) / S::kUnit : 0;
    end = n * S::kUnitsASegment + (min(keys.end - last, kSegment) + S::kUnit - 1) / S::kUnit;
  }
  __device__ std::uint32_t segment(std::uint32_t u) const {
    return first + u / S::kUnitsASegment * step;
  }
  __device__ std::uint32_t position(std::uint32_t u) const {
    return segment(u) * kSegment + u % S::kUnitsASegment * S::kUnit;
  }
  __device__ bool ends_segment(std::uint32_t u) const {
    return u + 1 == end || (u + 1) % S::kUnitsASegment == 0;
  }
};

// Keys of the next unit are on their way from when this one's have been scored, values from when
// they have been added up; old ones of the first before the kernels ahead have ended, which write
// positions of this step alone.
template <class S, class EndSegment>
__device__ void walk(FewBlock<S>& block, const UnitList<S>& units, EndSegment&& end_segment) {
  const FewSource& source = block.source;
  const AttentionParams& p = block.p;
  const std::uint32_t warp = block.warp, lane = block.lane, base = shared_address(block.shared);
  const auto runs_of = [&](std::uint32_t u) {
    return FewRuns<S>(source, units.position(u) + warp * S::kRows, lane);
  };
  const auto fetch_keys = [&]<FewPart kPart = FewPart::all>(const FewRuns<S>& runs) {
    runs.template fetch<kPart>(source, p.k, block.at.k, base, warp, lane);
  };
  const auto fetch_values = [&]<FewPart kPart = FewPart::all>(const FewRuns<S>& runs) {
    runs.template fetch<kPart>(source, p.v, block.at.v, base, warp, lane);
  };
  FewRuns<S> runs = runs_of(units.begin);
  const bool is_early = !S::kEncoded || units.position(units.begin) + S::kUnit <= source.n_old;
  constexpr FewPart kEarly = S::kEncoded ? FewPart::all : FewPart::old,
                    kLate = S::kEncoded ? FewPart::all : FewPart::fresh;
  if (is_early) {
    fetch_keys.template operator()<kEarly>(runs);
    fetch_values.template operator()<kEarly>(runs);
  }
  block.start();
  block.find_pairs();
  await_previous();
  if (!S::kEncoded || !is_early) fetch_keys.template operator()<kLate>(runs);
  commit_copies();
  if (!S::kEncoded || !is_early) fetch_values.template operator()<kLate>(runs);
  commit_copies();
  block.load_queries();
  for (std::uint32_t u = units.begin; u < units.end; ++u) {
    const std::uint32_t first = units.position(u), own_first = first + warp * S::kRows;
    const bool has_next = u + 1 < units.end;
    if (has_next) runs = runs_of(u + 1);
    typename FewBlock<S>::Scores x;
    float keep[S::kTiles][S::kGroups][2];
    wait_for_copies<1>();
    __syncwarp();
    bool is_exact_table = true;
    if constexpr (S::kEncoded) {
      is_exact_table =
          make_few_table<S>(source, p.k, block.at.k, block.shared, own_first, warp, lane);
      __syncwarp();
    }
    block.find_scores(own_first, is_exact_table, x);
    __syncwarp();
    if (has_next) fetch_keys(runs);
    commit_copies();
    block.tell_maxima(x);
    __syncthreads();
    block.find_weights(x, keep);
    wait_for_copies<1>();
    __syncwarp();
    if constexpr (S::kEncoded) {
      const bool is_exact =
          make_few_table<S>(source, p.v, block.at.v, block.shared, own_first, warp, lane);
      if (lane == 0)
        reinterpret_cast<std::uint32_t*>(block.shared + block.at.exact)[warp] = is_exact;
    }
    __syncthreads();
    block.add_values(first, keep);
    if (units.ends_segment(u)) end_segment(units.segment(u));
    __syncthreads();
    if (has_next) fetch_values(runs);
    commit_copies();
  }
}

// Whether this block was the last of n_blocks to come here; what the others wrote is seen by it.
__device__ bool is_last_of(std::uint32_t* arrivals, std::uint32_t n_blocks) {
  __shared__ std::uint32_t before;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) before = atomicInc(arrivals, n_blocks - 1);
  __syncthreads();
  if (before != n_blocks - 1) return false;
  __threadfence();
  return true;
}

struct Params {
  AttentionParams attention;
  FewLayout layout;
};

template <class S, int kBlocks>
__global__ void __launch_bounds__(S::kThreads, kBlocks)
    attend_few(const __grid_constant__ Params params) {
  extern __shared__ __align__(16) std::byte shared[];
  const AttentionParams& p = params.attention;
  const FewLayout& layout = params.layout;
  let_next_start();
  const KvRow row = p.rows[blockIdx.z];
  if (!serves(p, row)) return await_previous();
  const std::uint32_t kv_head = blockIdx.y % p.n_kv_heads, heads = p.n_heads / p.n_kv_heads,
                      m = blockIdx.y / p.n_kv_heads * S::kPairs;
  if (m >= row.n_new * heads) return await_previous();
  const std::uint32_t last_i = min((m + S::kPairs - 1) / heads, row.n_new - 1);
  const KeyRange keys{keys_of(p, row, m / heads).begin, keys_of(p, row, last_i).end};
  const std::uint32_t row_first = keys_of(p, row, 0).begin / kSegment,
                      first = keys.begin / kSegment, last = (keys.end - 1) / kSegment;
  if (first + blockIdx.x > last) return await_previous();
  const FewSource source{p, row.blocks, kv_head, keys.begin, row.length + row.n_new, row.length};
  FewBlock<S> block{.p = p,
                    .at = layout,
                    .shared = shared,
                    .source = source,
                    .row = row,
                    .m = m,
                    .warp = threadIdx.x / 32,
                    .lane = threadIdx.x % 32};
  if (S::kEncoded)
    load_centroids<S::kThreads>(p.v, reinterpret_cast<float*>(shared + layout.centroids));
  const UnitList<S> units(first + blockIdx.x, last, gridDim.x, keys);
  walk(block, units, [&](std::uint32_t segment) {
    p.part_out ? block.store_part(blockIdx.z, segment, row_first) : block.merge_segment(segment);
  });
  if (p.part_out == nullptr) block.finish();
  if (p.arrivals == nullptr) return;
  const std::uint32_t n_blocks = min(gridDim.x, last - first + 1);
  if (!is_last_of(p.arrivals + blockIdx.z * gridDim.y + blockIdx.y, n_blocks)) return;
  auto* const factors = reinterpret_cast<Merge*>(shared + layout.weights) + block.warp * 32;
  for (std::uint32_t i = block.warp; i < S::kPairs; i += S::kWarps) {
    const QueryRow q = block.pair(i);
    if (q.seen.end != 0) combine_by_warp<S::kDim>(p, row, blockIdx.z, q.i, q.head, factors);
  }
}

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
  return with_shape(p, false, [&](auto shape, auto n_blocks) {
    using S = decltype(shape);
    const std::uint32_t fit = kSharedBytes / (FewLayout::of<S>(p).size + 1024);
    return FewBlocks{S::kPairs, std::clamp<std::uint32_t>(fit, 1, n_blocks.value)};
  });
}

void launch_attend_few(Queue& queue, const AttentionParams& p, const AttentionGrid& g) {
  with_shape(p, g.is_wide, [&](auto shape, auto n_blocks) {
    using S = decltype(shape);
    const std::uint32_t n_groups =
        (g.most_new * (p.n_heads / p.n_kv_heads) + S::kPairs - 1) / S::kPairs;
    const FewLayout layout = FewLayout::of<S>(p);
    queue.launch_early(attend_few<S, n_blocks.value>,
                       dim3(g.n_splits, p.n_kv_heads * n_groups, g.n_rows), S::kThreads,
                       layout.size, Params{p, layout});
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
