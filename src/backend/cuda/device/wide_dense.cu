// Wide products of bf16 weights and up to 16 rows: a warp has a tile and its chain of mma.sync,
// whose steps follow one another sooner than those of wgmma.
#include "backend/cuda/device/wide_dense.cuh"

namespace kvasir::backend::cuda {
namespace {

template <int kN>
using Plan = WidePlan<Format<Code::bf16, ScaleKind::f32, false>, kN>;

// Operands of half a stage: 64 elements of K.
template <class P>
struct HalfStage {
  static constexpr unsigned kHalfSteps = kSteps / 2;
  std::uint32_t a[kHalfSteps][4], b[kHalfSteps][P::kN / 4];

  // The half's panels: weights from the warp's tile on, and x.
  __device__ void fetch(std::uint32_t weights, std::uint32_t x) {
    const unsigned lane = threadIdx.x % 32, row = lane % 8;
#pragma unroll
    for (unsigned step = 0; step < kHalfSteps; ++step) {
      ldmatrix_x4(a[step], weights + lane % 16 * 128 + ((step * 2 + lane / 16) ^ row) * 16);
      const std::uint32_t of_x = x + row * 128 + ((step * 2 + lane / 8 % 2) ^ row) * 16;
      if constexpr (P::kN == 8) {
        ldmatrix_x2(b[step], of_x);
      } else {
        ldmatrix_x4(b[step], of_x + lane / 16 * 1024);
      }
    }
  }
  __device__ void multiply(float (&sums)[P::kN / 8][4]) const {
#pragma unroll
    for (unsigned step = 0; step < kHalfSteps; ++step) {
#pragma unroll
      for (unsigned nt = 0; nt < P::kN / 8; ++nt)
        mma_bf16(sums[nt], a[step], b[step][2 * nt], b[step][2 * nt + 1]);
    }
  }
};

// A warp's way through stages.
struct DenseWalk {
  const WideMemory& m;
  WideTurn turn;
  __device__ unsigned enter() {
    const unsigned slot = turn.slot;
    barrier_wait(m.full(slot), turn.parity);
    turn.next();
    return slot;
  }
  __device__ void leave(unsigned slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(m.empty(slot));
  }
};

// While one half is multiplied, the next one is fetched.
template <class P>
__device__ inline void multiply_tile(const WideArgs& p,
                                     const WideMemory& m,
                                     DenseWalk& walk,
                                     unsigned tile,
                                     float (&sums)[P::kN / 8][4]) {
  const std::uint32_t n_stages = chunks_of(p.format.k), panel = p.pass_tiles * 2048;
  const auto fetch = [&](unsigned slot, unsigned half, HalfStage<P>& to) {
    const std::uint32_t at = m.at + slot * m.slot_bytes;
    to.fetch(at + half * panel + tile * 2048, at + m.x_at + half * P::kXPanel);
  };
  HalfStage<P> even, odd;
  unsigned slot = walk.enter();
  fetch(slot, 0, even);
  for (std::uint32_t stage = 0; stage < n_stages; ++stage) {
    fetch(slot, 1, odd);
    even.multiply(sums);
    const unsigned before = slot;
    if (stage + 1 < n_stages) {
      slot = walk.enter();
      fetch(slot, 0, even);
    }
    odd.multiply(sums);
    walk.leave(before);
  }
}

// A warp's tile: of its 16 outputs, or 8 of gate and 8 of up, a thread has two of each row.
template <int kN>
__device__ inline void store_tile(const WideArgs& p,
                                  std::uint32_t tile,
                                  const float (&sums)[kN / 8][4]) {
  const unsigned lane = threadIdx.x % 32, row0 = blockIdx.y * kN + lane % 4 * 2;
  const auto row_of = [&](unsigned i) { return row0 + i / 2 * 8 + i % 2; };
  float first[kN / 4], second[kN / 4];  // of rows
#pragma unroll
  for (unsigned i = 0; i < kN / 4; ++i)
    first[i] = sums[i / 2][i % 2], second[i] = sums[i / 2][i % 2 + 2];
  if (p.is_gated) {
    const std::uint32_t output = tile * 8 + lane / 4;
#pragma unroll 1
    for (unsigned i = 0; i < kN / 4; ++i) {
      const float value = next_gated(p, output, first, second);
      if (row_of(i) < p.n_rows && output < p.parts[0].n_out) put_one(p, row_of(i), output, value);
    }
    return;
  }
  const WidePart& part = part_of(p, tile);
  const std::uint32_t output = (tile - part.first_tile) * 16 + lane / 4;
#pragma unroll
  for (unsigned i = 0; i < kN / 4; ++i) {
    if (row_of(i) >= p.n_rows) continue;
    if (output < part.n_out)
      put_one(p, row_of(i), part.out_column + output, biased(first[i], part.bias, output));
    if (output + 8 < part.n_out)
      put_one(p, row_of(i), part.out_column + output + 8, biased(second[i], part.bias, output + 8));
  }
}

template <int kN>
__global__ void __launch_bounds__(Plan<kN>::kMaxThreads, 1)
    wide_dense_kernel(const __grid_constant__ WideArgs p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using P = Plan<kN>;
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  const unsigned n_multiply = blockDim.x - P::kHelpers;  // threads
  const std::uint32_t begin = shared_address(wide_shared);
  const std::uint32_t at = (begin + kWideRingAt + 1023) / 1024 * 1024;
  const WideMemory m{wide_shared + (at - begin), begin, at,
                     P::slot_bytes(p.pass_tiles, p.format.chunk_bytes),
                     P::weight_bytes(p.pass_tiles, p.format.chunk_bytes)};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(m.full(i), P::kWeightThreads + 1);
      barrier_init(m.empty(i), n_multiply / 32);
    }
    barriers_are_initialised();
    let_next_start();
  }
  __syncthreads();
  const WideShare share(p, false);
  if (threadIdx.x < n_multiply) {
    const unsigned warp = threadIdx.x / 32;
    DenseWalk walk{m, {p.n_slots}};
    for (std::uint32_t i = 0; i < share.n_passes; ++i) {
      const WideShare::Pass pass = share.pass(i);
      if (warp < pass.n) {
        float sums[kN / 8][4] = {};
        multiply_tile<P>(p, m, walk, warp, sums);
        store_tile<kN>(p, pass.first + warp, sums);
      } else {
        for (std::uint32_t stage = 0; stage < chunks_of(p.format.k); ++stage)
          walk.leave(walk.enter());
      }
    }
  } else if (threadIdx.x < n_multiply + P::kWeightThreads) {
    bring_dense<P>(p, share, m);
  } else if (kN == 8 && !p.x) {
    bring_rows<P>(p, share, m);
  } else {
    bring_x<P>(p, share, m);
  }
#endif
}

template <int kN>
void launch_rows(Queue& queue, WideArgs p) {
  using P = Plan<kN>;
  const unsigned n_blocks = p.n_tiles < p.n_sms ? p.n_tiles : p.n_sms;
  const unsigned most = (p.n_tiles + n_blocks - 1) / n_blocks;  // tiles of a block
  p.n_passes = (most + P::kPassTiles - 1) / P::kPassTiles;
  p.pass_tiles = (most + p.n_passes - 1) / p.n_passes;
  const unsigned slot_bytes = P::slot_bytes(p.pass_tiles, p.format.chunk_bytes);
  const unsigned fit = P::kRoom / slot_bytes;
  p.n_slots = fit < kWideSlots ? fit : kWideSlots;
  const unsigned n_groups = p.pass_tiles > kGroupTiles ? 2 : 1;
  queue.launch_early(&wide_dense_kernel<kN>, dim3(n_blocks, (p.n_rows + kN - 1) / kN),
                     n_groups * kWarpgroup + P::kHelpers,
                     kWideRingAt + 1023 + std::size_t{p.n_slots} * slot_bytes, p);
}

}  // namespace

bool has_wide_products() {
  static const bool is_there = [] {
    cudaFuncAttributes facts{};
    return KVASIR_CUDA_HAS_WGMMA != 0 &&
           cudaFuncGetAttributes(&facts, wide_dense_kernel<8>) == cudaSuccess &&
           facts.binaryVersion == 90;
  }();
  return is_there;
}

void launch_wide_dense(Queue& queue, const WideArgs& args) {
  switch (wide_rows(args.n_rows)) {
    case 8:
      return launch_rows<8>(queue, args);
    case 16:
      return launch_rows<16>(queue, args);
    default:
      return launch_wide_dense_rows(queue, args);
  }
}

}  // namespace kvasir::backend::cuda
