// A block of decode attention: its walk over the units of its segments, and what becomes of them.
#pragma once

#include <type_traits>

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/combine.cuh"
#include "backend/cuda/device/few_block.cuh"
#include "backend/cuda/device/few_cluster.cuh"
#include "backend/cuda/device/few_fresh.cuh"

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

struct NoFreshHeads {};

// Keys of the next unit are on their way from when this one's have been scored, values from when
// they have been added up; old ones of the first before the kernels ahead have ended, which write
// positions of this step alone.
// fresh: the row's new token's heads if the block makes them itself, or NoFreshHeads.
template <class S, class Fresh, class EndSegment>
__device__ void walk(FewBlock<S>& block,
                     const UnitList<S>& units,
                     Fresh&& fresh,
                     EndSegment&& end_segment) {
  constexpr bool kMakes = !std::is_same_v<std::remove_cvref_t<Fresh>, NoFreshHeads>;
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
  if constexpr (kMakes) {
    commit_copies();
    commit_copies();
    fresh.load_tables();
    await_previous();
    const bool has_place = units.segment(units.end - 1) == block.row.length / kSegment;
    fresh.make(units.position(units.begin), has_place);
    fresh.load_queries(block);
  } else {
    await_previous();
    if (!S::kEncoded || !is_early) fetch_keys.template operator()<kLate>(runs);
    commit_copies();
    if (!S::kEncoded || !is_early) fetch_values.template operator()<kLate>(runs);
    commit_copies();
    block.load_queries();
  }
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

// kMakes: the heads of rows of one new token each are still to be made. kCluster > 1: of the blocks
// that share a row's segments each has one, and they join in shared memory.
template <class S, bool kMakes, int kCluster = 1>
__device__ void attend_block(const AttentionParams& p,
                             const FewLayout& layout,
                             const QueryKeyParams* prepare) {
  extern __shared__ __align__(16) std::byte shared[];
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
  if constexpr (kCluster > 1) {
    const ClusterParts<S> parts{block};
    walk(block, units, FreshHeads<S>(*prepare, block), [&](std::uint32_t) { parts.keep(); });
    meet_cluster();
    parts.template join<kCluster>(last - first + 1);
    meet_cluster();  // what others read stays that long
    return;
  }
  const auto end_segment = [&](std::uint32_t segment) {
    p.part_out ? block.store_part(blockIdx.z, segment, row_first) : block.merge_segment(segment);
  };
  if constexpr (kMakes) {
    walk(block, units, FreshHeads<S>(*prepare, block), end_segment);
  } else {
    walk(block, units, NoFreshHeads{}, end_segment);
  }
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

}  // namespace
}  // namespace kvasir::backend::cuda
