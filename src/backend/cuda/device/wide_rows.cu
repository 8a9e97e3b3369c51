// Wide products of bf16 weights and 17 to 64 rows: the rows are operand A of wgmma, so that each
// stage of x is read once for all of a pass's weights. Two blocks have different weights and one
// x: each brings half of it to both.
#include "backend/cuda/device/wide_dense.cuh"
#include "backend/cuda/device/wide_pairs.cuh"
#include "backend/cuda/device/wide_rows_mma.cuh"

namespace kvasir::backend::cuda {
namespace {

using Dense = WidePlan<Format<Code::bf16, ScaleKind::f32, false>, 64>;
constexpr unsigned kRows = Dense::kN, kXPanel = Dense::kXPanel;
constexpr unsigned kWeightThreads = Dense::kWeightThreads;

// A stage is a chunk of K, first the weights' panels, then x's. kTiles: at least the group's; what
// is read beyond them shows in no result.
template <int kTiles>
__device__ inline void multiply_pass(const WideArgs& p,
                                     const WideMemory& m,
                                     WideTurn& turn,
                                     unsigned group,
                                     float (&sums)[8 * kTiles]) {
  const std::uint32_t n_chunks = chunks_of(p.format.k), panel = p.pass_tiles * 2048;
  unsigned slot = 0;
  for (std::uint32_t chunk = 0; chunk < n_chunks; ++chunk) {
    const unsigned before = slot;
    slot = turn.slot;
    barrier_wait(m.full(slot), turn.parity);
    turn.next();
    order_for_wgmma();
    const std::uint32_t at = m.at + slot * m.slot_bytes;
    const std::uint64_t weights = rows_of_k(at + group * (kTiles * 2048)),
                        x = rows_of_k(at + m.x_at);
    hold(sums);
    wgmma_fence();
#pragma unroll
    for (unsigned step = 0; step < kSteps; ++step)
      multiply_tiles(sums, x + (step / 4 * (kXPanel >> 4) + step % 4 * 2),
                     weights + (step / 4 * (panel >> 4) + step % 4 * 2));
    wgmma_commit();
    wgmma_wait<1>();
    if (chunk > 0) leave_in_pair(m, before);
  }
  wgmma_wait();
  hold(sums);
  leave_in_pair(m, slot);
}

// Of a tile a thread has two neighbouring outputs of its first 8, and two of its last 8, of each of
// two rows: lane / 4 and that plus 8 of its warp's 16.
__device__ inline void store_tile(const WideArgs& p, std::uint32_t tile, const float (&sums)[8]) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  const std::uint32_t row = blockIdx.y * kRows + warp * 16 + lane / 4, neighbour = lane % 4 * 2;
  const auto left = [](std::uint32_t n, std::uint32_t output) {
    return output < n ? min(n - output, 2u) : 0u;
  };
  if (p.is_gated) {
    const std::uint32_t output = tile * 8 + neighbour, n = left(p.parts[0].n_out, output);
    float gate[4], up[4], made[4] = {};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) gate[i] = sums[i], up[i] = sums[i + 4];
#pragma unroll 1
    for (unsigned i = 0; i < 4; ++i) {
      const float value = next_gated(p, output + i % 2, gate, up);
      made[0] = made[1], made[1] = made[2], made[2] = made[3], made[3] = value;
    }
    if (row < p.n_rows) put_two(p, row, output, {made[0], made[1]}, n);
    if (row + 8 < p.n_rows) put_two(p, row + 8, output, {made[2], made[3]}, n);
    return;
  }
  const WidePart& part = part_of(p, tile);
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const std::uint32_t output = (tile - part.first_tile) * 16 + half * 8 + neighbour,
                        n = left(part.n_out, output);
    const float* const of = sums + 4 * half;
    const auto value = [&](unsigned i) {
      return i % 2 < n ? biased(of[i], part.bias, output + i % 2) : 0.0f;
    };
    if (row < p.n_rows) put_two(p, row, part.out_column + output, {value(0), value(1)}, n);
    if (row + 8 < p.n_rows) put_two(p, row + 8, part.out_column + output, {value(2), value(3)}, n);
  }
}

// The first of the group's tiles, then the next, which moves to its place.
template <int kTiles>
__device__ inline void store_pass(const WideArgs& p,
                                  const WideShare::Pass& pass,
                                  unsigned group,
                                  float (&sums)[8 * kTiles]) {
#pragma unroll 1
  for (unsigned t = 0; t < kTiles && group * kTiles + t < pass.n; ++t) {
    float first[8];
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) first[i] = sums[i];
    store_tile(p, pass.first + group * kTiles + t, first);
#pragma unroll
    for (unsigned i = 0; i + 8 < 8 * kTiles; ++i) sums[i] = sums[i + 8];
  }
}

template <int kTiles, int kGroups>
__global__ void KVASIR_PAIRS __launch_bounds__(kGroups* kWarpgroup + Dense::kHelpers, 1)
    wide_rows_kernel(const __grid_constant__ WideArgs p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  constexpr unsigned kMultiply = kGroups * kWarpgroup;
  const std::uint32_t begin = shared_address(wide_shared);
  const std::uint32_t at = (begin + kPairsRingAt + 1023) / 1024 * 1024;
  const WideMemory m{wide_shared + (at - begin), begin, at,
                     Dense::slot_bytes(p.pass_tiles, p.format.chunk_bytes),
                     Dense::weight_bytes(p.pass_tiles, p.format.chunk_bytes)};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(m.full(i), kWeightThreads + 1);
      barrier_init(m.empty(i), kMultiply / 32);
      barrier_init(all_empty(m, i), kPair * (kMultiply / 32));
    }
    barriers_are_initialised();
    let_next_start();
  }
  wait_for_cluster();
  const WideShare share(p, false);
  // One value a warp, which the compiler sees: descriptors are made of it.
  const unsigned group = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroup, 0);
  if (group < kGroups) {
    WideTurn turn{p.n_slots};
    for (std::uint32_t i = 0; i < share.n_passes; ++i) {
      float sums[8 * kTiles] = {};
      multiply_pass<kTiles>(p, m, turn, group, sums);
      store_pass<kTiles>(p, share.pass(i), group, sums);
    }
  } else if (threadIdx.x < kMultiply + kWeightThreads) {
    bring_dense<Dense>(p, share, m);
  } else {
    bring_shared_x<Dense>(p, share, m);
  }
  wait_for_cluster();  // the other block arrives at this one's barriers to the end
#endif
}

template <int kTiles, int kGroups>
void launch_tiles(Queue& queue, WideArgs p, unsigned n_blocks) {
  const unsigned slot_bytes = Dense::slot_bytes(p.pass_tiles, p.format.chunk_bytes);
  const unsigned fit = Dense::kRoom / slot_bytes;
  p.n_slots = fit < kWideSlots ? fit : kWideSlots;
  queue.launch_early(&wide_rows_kernel<kTiles, kGroups>,
                     dim3(n_blocks, (p.n_rows + kRows - 1) / kRows),
                     kGroups * kWarpgroup + Dense::kHelpers,
                     kPairsRingAt + 1023 + std::size_t{p.n_slots} * slot_bytes, p);
}

}  // namespace

void launch_wide_dense_rows(Queue& queue, WideArgs p) {
  const unsigned n_blocks = blocks_in_pairs(p.n_tiles, p.n_sms);
  const unsigned most = (p.n_tiles + n_blocks - 1) / n_blocks;  // tiles of a block
  p.n_passes = (most + Dense::kPassTiles - 1) / Dense::kPassTiles;
  p.pass_tiles = (most + p.n_passes - 1) / p.n_passes;
  switch (p.pass_tiles) {
    case 1:
    case 2:
      return launch_tiles<2, 1>(queue, p, n_blocks);
    case 3:
      return launch_tiles<3, 1>(queue, p, n_blocks);
    case 4:
      return launch_tiles<4, 1>(queue, p, n_blocks);
    case 5:
    case 6:
      return launch_tiles<3, 2>(queue, p, n_blocks);
    default:
      return launch_tiles<4, 2>(queue, p, n_blocks);
  }
}

}  // namespace kvasir::backend::cuda
