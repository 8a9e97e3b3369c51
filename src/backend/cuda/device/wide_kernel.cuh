// Products of quantized weights. A block stays on its multiprocessor and has a run of tiles of 16
// weight rows, up to eight of them at a time: a pass. Helpers bring a pass's weights and x through
// one ring that goes on from pass to pass; one or two warpgroups multiply, up to four tiles each.
// Weights are on their way before the kernels ahead have ended. Here: up to 16 rows.
#pragma once

#include "backend/cuda/device/activation.cuh"
#include "backend/cuda/device/wide_codes.cuh"
#include "backend/cuda/device/wide_dense.cuh"
#include "backend/cuda/device/wide_ring.cuh"

namespace kvasir::backend::cuda {

// Two chunks a stage. A chunk's operands are decoded in registers while the products of the chunk
// before are on their way; those that follow its own are fetched meanwhile.
template <class F, class P, SlabRows kRows, class Walk>
__device__ inline void multiply_codes(const WideArgs& p,
                                      const WideMemory& m,
                                      Walk& walk,
                                      const WideSlab& slab,
                                      float (&sums)[P::kN / 2]) {
  static_assert(P::kStageChunks == 2);
  using Chunk = WideChunk<F, kRows>;
  const std::uint32_t n_chunks = chunks_of(p.format.k), chunk_bytes = p.format.chunk_bytes;
  const WideCodes<F, kRows> codes{
      threadIdx.x % 32, 31u - static_cast<unsigned>(__clz(static_cast<int>(p.format.group))),
      static_cast<float>(p.format.offset), slab.half};
  constexpr bool kIsGated = kRows == SlabRows::gated;
  const std::uint32_t first = (kIsGated ? slab.tile / 2 * 2 : slab.tile) * 2 * chunk_bytes,
                      second = kIsGated ? first + 2 * chunk_bytes : first;
  const auto fetch = [&](unsigned slot, std::uint32_t c, Chunk& to) {
    const unsigned char* const at = m.ring + slot * m.slot_bytes + c * chunk_bytes;
    codes.fetch(at + first, at + second, to);
  };
  const auto multiply = [&](const Chunk& chunk, std::uint32_t x) {
    const std::uint64_t b = rows_of_k(x);
    std::uint32_t a[kSteps][4];
#pragma unroll
    for (unsigned step = 0; step < kSteps; ++step) codes.decode(chunk, step, a[step]);
    hold(a);
    wgmma_fence();
#pragma unroll
    for (unsigned step = 0; step < kSteps; ++step)
      multiply_held(sums, a[step], b + (step / 4 * (P::kXPanel >> 4) + step % 4 * 2));
    wgmma_commit();
    wgmma_wait<1>();
  };
  Chunk even, odd;
  unsigned slot = walk.enter(), before = slot;
  fetch(slot, 0, even);
  hold(sums);
  for (std::uint32_t chunk = 0; chunk + 1 < n_chunks; chunk += 2) {
    const std::uint32_t x = m.at + slot * m.slot_bytes + m.x_at;
    fetch(slot, 1, odd);
    const WideWalk::Next next = walk.look();  // past the last one, no stage's
    multiply(even, x);
    if (chunk > 0) walk.leave(before);
    before = slot;
    if (chunk + 2 < n_chunks) {
      slot = walk.enter(next);
      fetch(slot, 0, even);
    }
    multiply(odd, x + 2 * P::kXPanel);
  }
  wgmma_wait();
  if (n_chunks % 2 > 0) {
    if (n_chunks > 1) walk.leave(before);
    multiply(even, m.at + slot * m.slot_bytes + m.x_at);
    wgmma_wait();
  }
  hold(sums);
  walk.leave(slot);
}

// A pass in which this group has nothing to multiply.
template <class P, class Walk>
__device__ inline void skip_pass(const WideArgs& p, Walk& walk) {
  for (std::uint32_t chunk = 0; chunk < chunks_of(p.format.k); chunk += P::kStageChunks)
    walk.leave(walk.enter());
}

// A warp's slab.
template <int kN>
__device__ inline void store_slab(const WideArgs& p,
                                  std::uint32_t first_tile,
                                  const WideSlab& slab,
                                  bool is_gated,
                                  bool is_spread,
                                  const float (&sums)[kN / 2]) {
  constexpr int kAtOnce = 4;
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t tile = first_tile + slab.tile;
  const WidePart& part = is_gated ? p.parts[0] : part_of(p, tile);
#pragma unroll
  for (int four = 0; four < kN / 2; four += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* const own = sums + four;
      const std::uint32_t row = blockIdx.y * kN + four / 4 * 8 + lane % 4 * 2 + i % 2;
      const bool is_second = i >= 2;  // of the slab's halves
      if (row >= p.n_rows || (is_second && (is_gated || is_spread))) continue;
      if (is_gated) {
        const std::uint32_t output = tile * 8 + lane / 4;
        if (output < part.n_out)
          put_one(p, row, output,
                  activate(p.activation, p.limit, biased(own[i], p.parts[0].bias, output),
                           biased(own[i % 2 + 2], p.parts[1].bias, output)));
      } else {
        const std::uint32_t output =
            (tile - part.first_tile) * 16 + lane / 4 + 8 * (is_second ? 1 : slab.half);
        if (output < part.n_out)
          put_one(p, row, part.out_column + output, biased(own[i], part.bias, output));
      }
    }
  }
}

template <class F, class P, SlabRows kRows>
__device__ inline void multiply_passes(const WideArgs& p,
                                       const WideShare& share,
                                       const WideMemory& m,
                                       unsigned warp) {
  constexpr bool kIsGated = kRows == SlabRows::gated;
  const unsigned group = warp / 4;
  WideWalk walk(m, p.n_slots);
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    const unsigned first = group * kGroupTiles;
    const WideSlab slab(p, pass, first + warp % 4);
    float sums[P::kN / 2] = {};
    if (first >= (kRows == SlabRows::spread ? 2 * pass.n : pass.n)) {
      skip_pass<P>(p, walk);
    } else {
      multiply_codes<F, P, kRows>(p, m, walk, slab, sums);
    }
    if (slab.is_there)
      store_slab<P::kN>(p, pass.first, slab, kIsGated, kRows == SlabRows::spread, sums);
  }
}

template <class F, int kN, SlabRows kRows>
__global__ void __launch_bounds__(WidePlan<F, kN>::kMaxThreads, 1)
    wide_kernel(const __grid_constant__ WideArgs p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using P = WidePlan<F, kN>;
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  const unsigned n_multiply = blockDim.x - P::kHelpers;  // threads
  const std::uint32_t begin = shared_address(wide_shared);
  const std::uint32_t at = (begin + kWideRingAt + 1023) / 1024 * 1024;
  const WideMemory m{wide_shared + (at - begin), begin, at,
                     P::slot_bytes(p.pass_tiles, p.format.chunk_bytes),
                     P::weight_bytes(p.pass_tiles, p.format.chunk_bytes)};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(m.full(i), 2);
      barrier_init(m.empty(i), n_multiply / 32);
    }
    barriers_are_initialised();
    let_next_start();
  }
  __syncthreads();
  const WideShare share(p, kRows == SlabRows::gated);
  // One value a warp, which the compiler sees: what hangs on it alone costs a warp one instruction.
  const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp < n_multiply / 32) {
    multiply_passes<F, P, kRows>(p, share, m, warp);
  } else if (warp < (n_multiply + P::kWeightThreads) / 32) {
    bring_codes<P>(p, share, m);
  } else if (P::kN == 8 && !p.x) {
    bring_rows<P>(p, share, m);
  } else {
    bring_x<P>(p, share, m);
  }
#endif
}

// n_passes and pass_tiles; how many blocks: no more than the passes of the busiest one need, so
// that small kernels may find a multiprocessor of their own.
template <class P>
unsigned plan_passes(WideArgs& p) {
  const unsigned grain = p.is_gated ? 2 : 1;
  const unsigned n_units = p.n_tiles / grain;
  const unsigned most = (n_units + p.n_sms - 1) / p.n_sms;  // units of a block
  p.n_passes = (most * grain + P::kPassTiles - 1) / P::kPassTiles;
  p.pass_tiles = (most + p.n_passes - 1) / p.n_passes * grain;
  return (n_units + most - 1) / most;
}

// pass_tiles, n_slots: what leaves room for the small kernels beside it.
template <class F, int kN>
void launch_wide_rows(Queue& queue, WideArgs p) {
  using P = WidePlan<F, kN>;
  const unsigned n_blocks = plan_passes<P>(p);
  const unsigned slot_bytes = P::slot_bytes(p.pass_tiles, p.format.chunk_bytes);
  const unsigned fit = P::kRoom / slot_bytes;
  p.n_slots = fit < kWideSlots ? fit : kWideSlots;
  p.is_spread = !p.is_gated && p.pass_tiles <= kGroupTiles;
  const unsigned n_slabs = p.is_spread ? 2 * p.pass_tiles : p.pass_tiles;
  const unsigned n_groups = n_slabs > kGroupTiles ? 2 : 1;
  const auto launch = [&]<SlabRows kRows>() {
    queue.launch_early(&wide_kernel<F, kN, kRows>, dim3(n_blocks, (p.n_rows + kN - 1) / kN),
                       n_groups * kWarpgroup + P::kHelpers,
                       kWideRingAt + 1023 + std::size_t{p.n_slots} * slot_bytes, p);
  };
  if (p.is_gated) return launch.template operator()<SlabRows::gated>();
  if (p.is_spread) return launch.template operator()<SlabRows::spread>();
  launch.template operator()<SlabRows::whole>();
}

template <class F>
void launch_many_rows(Queue& queue, WideArgs p);  // wide_many.cuh

template <Code kCode>
void launch_wide_code(Queue& queue, const WideArgs& p) {
  with_format<kCode>(p.format, [&]<class F>() {
    switch (wide_rows(p.n_rows)) {
      case 8:
        return launch_wide_rows<F, 8>(queue, p);
      case 16:
        return launch_wide_rows<F, 16>(queue, p);
      default:
        return launch_many_rows<F>(queue, p);
    }
  });
}

}  // namespace kvasir::backend::cuda
