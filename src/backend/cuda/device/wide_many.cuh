// Products of quantized weights and 17 to 64 rows: as those of fewer (wide_kernel.cuh), but pairs
// of blocks share x (wide_pairs.cuh).
#pragma once

#include "backend/cuda/device/wide_kernel.cuh"
#include "backend/cuda/device/wide_pairs.cuh"

namespace kvasir::backend::cuda {

// Bf16Copy::place of a row of this column of blocks: tiles, if any, are of 64 rows as it is.
__device__ inline std::size_t place_of_copy(const Bf16Copy& copy,
                                            std::uint32_t in_tile,
                                            std::uint32_t column) {
  if (copy.tile_rows == 0) return (blockIdx.y * 64ull + in_tile) * copy.stride + column;
  return (std::size_t{blockIdx.y} * (copy.stride / 64) + column / 64) * 4096 + in_tile * 64 +
         ((column % 64 / 8) ^ (in_tile % 8)) * 8 + column % 8;
}

// A warp's slab: of 64 rows, 16 at a time; those that follow move to their place, for registers
// cannot be counted through.
template <SlabRows kRows>
__device__ inline void store_many(const WideArgs& p,
                                  std::uint32_t first_tile,
                                  const WideSlab& slab,
                                  float (&sums)[32]) {
  constexpr bool kIsGated = kRows == SlabRows::gated;
  constexpr unsigned kHalves = kRows == SlabRows::whole ? 2 : 1;  // outputs of a thread
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t tile = first_tile + slab.tile;
  const WidePart& part = kIsGated ? p.parts[0] : part_of(p, tile);
  std::uint32_t outputs[kHalves];
  float bias[2] = {};
#pragma unroll
  for (unsigned half = 0; half < kHalves; ++half) {
    outputs[half] = kIsGated ? tile * 8 + lane / 4
                             : (tile - part.first_tile) * 16 + lane / 4 +
                                   8 * (kRows == SlabRows::spread ? slab.half : half);
    if (part.bias && outputs[half] < part.n_out) bias[half] = part.bias[outputs[half]];
  }
  const float* const up_bias = p.parts[1].bias;
  if (kIsGated && up_bias && outputs[0] < part.n_out) bias[1] = up_bias[outputs[0]];
  const auto put_value = [&](std::uint32_t in_tile, unsigned half, float value) {
    const std::uint32_t row = blockIdx.y * 64 + in_tile, column = part.out_column + outputs[half];
    if (row >= p.n_rows || outputs[half] >= part.n_out) return;
    if (p.out) p.out[row * p.out_stride + column] = value;
    if (p.copy.data)
      static_cast<__nv_bfloat16*>(p.copy.data)[place_of_copy(p.copy, in_tile, column)] =
          __float2bfloat16_rn(value);
  };
  const auto with = [](float sum, const float* is_there, float value) {
    return is_there ? __fadd_rn(sum, value) : sum;
  };
#pragma unroll 1
  for (std::uint32_t row = lane % 4 * 2; row < 64; row += 16) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const float* const own = sums + i / 2 * 4 + i % 2;
      const std::uint32_t in_tile = row + i / 2 * 8 + i % 2;
      if constexpr (kIsGated) {
        put_value(in_tile, 0,
                  activate(p.activation, p.limit, with(own[0], part.bias, bias[0]),
                           with(own[2], up_bias, bias[1])));
      } else {
#pragma unroll
        for (unsigned half = 0; half < kHalves; ++half)
          put_value(in_tile, half, with(own[2 * half], part.bias, bias[half]));
      }
    }
#pragma unroll
    for (unsigned i = 0; i + 8 < 32; ++i) sums[i] = sums[i + 8];
  }
}

template <class F, class P, SlabRows kRows>
__device__ inline void multiply_many(const WideArgs& p,
                                     const WideShare& share,
                                     const WideMemory& m,
                                     unsigned warp) {
  const unsigned first = warp / 4 * kGroupTiles;
  PairWalk walk(m, p.n_slots);
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    const WideSlab slab(p, pass, first + warp % 4);
    float sums[32] = {};
    if (first >= (kRows == SlabRows::spread ? 2 * pass.n : pass.n)) {
      skip_pass<P>(p, walk);
    } else {
      multiply_codes<F, P, kRows>(p, m, walk, slab, sums);
    }
    if (slab.is_there) store_many<kRows>(p, pass.first, slab, sums);
  }
}

template <class F, SlabRows kRows>
__global__ void KVASIR_PAIRS __launch_bounds__(WidePlan<F, 64>::kMaxThreads, 1)
    many_kernel(const __grid_constant__ WideArgs p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using P = WidePlan<F, 64>;
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  const unsigned n_multiply = blockDim.x - P::kHelpers;  // threads
  const std::uint32_t begin = shared_address(wide_shared);
  const std::uint32_t at = (begin + kPairsRingAt + 1023) / 1024 * 1024;
  const WideMemory m{wide_shared + (at - begin), begin, at,
                     P::slot_bytes(p.pass_tiles, p.format.chunk_bytes),
                     P::weight_bytes(p.pass_tiles, p.format.chunk_bytes)};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(m.full(i), 2);
      barrier_init(m.empty(i), n_multiply / 32);
      barrier_init(all_empty(m, i), kPair * (n_multiply / 32));
    }
    barriers_are_initialised();
    let_next_start();
  }
  wait_for_cluster();
  const WideShare share(p, kRows == SlabRows::gated);
  // One value a warp, which the compiler sees: what hangs on it alone costs a warp one instruction.
  const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp < n_multiply / 32) {
    multiply_many<F, P, kRows>(p, share, m, warp);
  } else if (warp < (n_multiply + P::kWeightThreads) / 32) {
    bring_codes<P>(p, share, m);
  } else {
    bring_shared_x<P>(p, share, m);
  }
  __syncwarp();
  wait_for_cluster();  // the other block arrives at this one's barriers to the end
#endif
}

template <class F>
void launch_many_rows(Queue& queue, WideArgs p) {
  using P = WidePlan<F, 64>;
  const unsigned grain = p.is_gated ? 2 : 1, n_units = p.n_tiles / grain;
  const unsigned n_blocks = blocks_in_pairs(n_units, p.n_sms);
  const unsigned most = (n_units + n_blocks - 1) / n_blocks * grain;  // tiles of a block
  p.n_passes = (most + P::kPassTiles - 1) / P::kPassTiles;
  constexpr unsigned kLeastSlots = 3;
  unsigned slot_bytes = 0;
  do {
    p.pass_tiles = (most / grain + p.n_passes - 1) / p.n_passes * grain;
    slot_bytes = P::slot_bytes(p.pass_tiles, p.format.chunk_bytes);
    p.n_slots = P::kRoom / slot_bytes;
  } while (p.n_slots < kLeastSlots && p.n_passes++ < most);
  p.is_spread = !p.is_gated && p.pass_tiles <= kGroupTiles;
  const unsigned n_slabs = p.is_spread ? 2 * p.pass_tiles : p.pass_tiles;
  const unsigned n_groups = n_slabs > kGroupTiles ? 2 : 1;
  const auto launch = [&]<SlabRows kRows>() {
    queue.launch_early(&many_kernel<F, kRows>, dim3(n_blocks, (p.n_rows + 63) / 64),
                       n_groups * kWarpgroup + P::kHelpers,
                       kPairsRingAt + 1023 + std::size_t{p.n_slots} * slot_bytes, p);
  };
  if (p.is_gated) return launch.template operator()<SlabRows::gated>();
  if (p.is_spread) return launch.template operator()<SlabRows::spread>();
  launch.template operator()<SlabRows::whole>();
}

}  // namespace kvasir::backend::cuda
