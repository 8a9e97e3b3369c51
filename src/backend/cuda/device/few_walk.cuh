// Decode: some (query, head) pairs of one KV head a block, over all segments of their row or some
// of them. Rows of KV state come to shared memory by whole units, keys and values apart, each when
// the ones before have been used.
#pragma once

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/combine.cuh"
#include "backend/cuda/device/few_block.cuh"

namespace kvasir::backend::cuda {

// Keys of the next unit are on their way from when this one's have been scored, values from when
// they have been added up; old ones of the first before the kernels ahead have ended, which write
// positions of this step alone.
template <class S, class Block, class EndSegment>
__device__ void walk(Block& block, const UnitList<S>& units, EndSegment&& end_segment) {
  using Runs = typename Block::Runs;
  const FewSource& source = block.source;
  const AttentionParams& p = block.p;
  const std::uint32_t warp = block.warp, lane = block.lane, base = shared_address(block.shared);
  const auto runs_of = [&](std::uint32_t u) {
    return Runs(source, units.position(u) + warp * S::kRows, lane);
  };
  const auto fetch_keys = [&]<FewPart kPart = FewPart::all>(const Runs& runs) {
    runs.template fetch<kPart>(source, p.k, block.at.k, base, warp, lane);
  };
  const auto fetch_values = [&]<FewPart kPart = FewPart::all>(const Runs& runs) {
    runs.template fetch<kPart>(source, p.v, block.at.v, base, warp, lane);
  };
  Runs runs = runs_of(units.begin);
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
  runs = runs_of(min(units.begin + 1, units.end - 1));
  for (std::uint32_t u = units.begin; u < units.end; ++u) {
    const std::uint32_t first = units.position(u), own_first = first + warp * S::kRows;
    const bool has_next = u + 1 < units.end;
    typename Block::Scores x;
    float keep[S::kTiles][S::kGroups][2];
    wait_for_copies<1>();
    __syncwarp();
    bool is_exact_table = true;
    if constexpr (S::kEncoded) {
      is_exact_table = block.make_key_table(own_first);
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
      const bool is_exact = block.make_value_table(own_first);
      if (lane == 0)
        reinterpret_cast<std::uint32_t*>(block.shared + block.at.exact)[warp] = is_exact;
    }
    __syncthreads();
    block.find_sums(first);
    block.add_values(first, keep);
    __syncthreads();
    if (has_next) fetch_values(runs);
    commit_copies();
    block.end_sums();
    if (units.ends_segment(u)) end_segment(units.segment(u));
    if (u + 2 < units.end) runs = runs_of(u + 2);  // long before it is needed
  }
}

// Whether this block was the last of n_blocks to come here; what the others wrote is seen by it.
__device__ inline bool is_last_of(std::uint32_t* arrivals, std::uint32_t n_blocks) {
  __shared__ std::uint32_t before;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) before = atomicInc(arrivals, n_blocks - 1);
  __syncthreads();
  if (before != n_blocks - 1) return false;
  __threadfence();
  return true;
}

struct FewParams {
  AttentionParams attention;
  FewLayout layout;
};

// Block: of FewBlock<S> or one that does the same.
template <class S, template <class> class BlockOf, int kBlocks>
__global__ void __launch_bounds__(S::kThreads, kBlocks)
    attend_few(const __grid_constant__ FewParams params) {
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
  BlockOf<S> block{{.p = p,
                    .at = layout,
                    .shared = shared,
                    .source = source,
                    .row = row,
                    .m = m,
                    .warp = threadIdx.x / 32,
                    .lane = threadIdx.x % 32}};
  if (S::kEncoded)
    load_centroids<S::kThreads>(p.v, reinterpret_cast<float*>(shared + layout.centroids));
  const UnitList<S> units(first + blockIdx.x, last, gridDim.x, keys);
  walk<S>(block, units, [&](std::uint32_t segment) {
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

// Rows of any codec, or exact ones.
template <class S>
struct AnyBlock : FewBlock<S> {};

}  // namespace kvasir::backend::cuda
