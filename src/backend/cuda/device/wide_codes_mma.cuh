// Products of quantized weights and up to 8 rows whose blocks have many tiles. A warp has a slab of
// 16 outputs and its chain of mma.sync, whose operands it decodes in registers: so many warps
// decode that they hide each other's waits. Helpers bring weights through a ring that goes on from
// pass to pass, before the kernels ahead have ended, and x, which stays in shared memory.
#pragma once

#include "backend/cuda/device/wide_codes.cuh"
#include "backend/cuda/device/wide_dense.cuh"

namespace kvasir::backend::cuda {

// Shared memory: barriers, x, the ring. A stage is so many chunks of each tile of a pass, and of
// all rows of x.
struct MmaPlan {
  static constexpr unsigned kStageChunks = 4, kTileWarps = 4, kXWarps = 2;
  static constexpr unsigned kHelpers = 32 * (kTileWarps + kXWarps);
  static constexpr unsigned kPassSlabs = 14, kMaxThreads = kPassSlabs * 32 + kHelpers;
  static constexpr unsigned kRowBytes = kStageChunks * kChunkK * 2 + 16;  // rows differ in banks
  static constexpr unsigned kPieces = kStageChunks * kChunkK / 8;         // of 16 bytes, of a row
  static constexpr unsigned kFewestSlots = 3, kRoom = 208u << 10;
  static constexpr unsigned kXBarriersAt = kWideRingAt;
  __host__ __device__ static unsigned stages(std::uint32_t k) {
    return (chunks_of(k) + kStageChunks - 1) / kStageChunks;
  }
  __host__ __device__ static unsigned x_at(std::uint32_t k) {
    return kXBarriersAt + (stages(k) + 1) / 2 * 16;
  }
  __host__ __device__ static unsigned ring_at(std::uint32_t k, unsigned n_rows) {
    return (x_at(k) + stages(k) * n_rows * kRowBytes + 127) / 128 * 128;
  }
};

// Where a block's x is: stages, each with a barrier that tells when it is there.
struct MmaX {
  std::uint32_t barriers, at, stage_bytes;  // shared addresses
  __device__ std::uint32_t full(unsigned stage) const { return barriers + 8 * stage; }
};

// Which units a block has: a tile each, or gate's and up's of the same outputs.
struct MmaShare {
  std::uint32_t n_units, n_passes, n_turns;
  __device__ MmaShare(const WideArgs& p)
      : n_units(p.is_gated ? p.n_tiles / 2 : p.n_tiles),
        n_passes(p.n_passes),
        n_turns((n_units + gridDim.x - 1) / gridDim.x) {}
  __device__ std::uint32_t first_turn(std::uint32_t pass) const {
    return pass * n_turns / n_passes;
  }
  __device__ std::uint32_t unit(std::uint32_t turn) const { return turn * gridDim.x + blockIdx.x; }
  // Units of a pass.
  __device__ std::uint32_t n_in(std::uint32_t pass) const {
    const std::uint32_t begin = first_turn(pass), end = first_turn(pass + 1);
    return end - begin - (unit(end - 1) < n_units ? 0 : 1);
  }
};

// By kTileWarps, whose lanes have a tile of the pass each: a thread's copies follow one another
// slowly.
__device__ inline void bring_tiles(const WideArgs& p,
                                   const MmaShare& share,
                                   const WideMemory& m,
                                   unsigned warp) {
  using P = MmaPlan;
  const unsigned lane = threadIdx.x % 32, grain = p.is_gated ? 2 : 1;
  const unsigned tile = lane * P::kTileWarps + warp;
  const std::uint32_t n_chunks = chunks_of(p.format.k), chunk_bytes = p.format.chunk_bytes;
  WideTurn turn{p.n_slots};
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const std::uint32_t n_tiles = share.n_in(i) * grain;
    const std::uint32_t unit =
        min(share.unit(share.first_turn(i) + tile / grain), share.n_units - 1);
    const WidePart& part = p.is_gated ? p.parts[tile % 2] : part_of(p, unit);
    const auto* const from = static_cast<const unsigned char*>(part.data) +
                             std::size_t{unit - part.first_tile} * n_chunks * chunk_bytes;
    for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += P::kStageChunks, turn.next()) {
      const std::uint32_t n_bytes = min(P::kStageChunks, n_chunks - chunk) * chunk_bytes;
      const std::uint32_t full = m.full(turn.slot);
      barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
      if (tile == 0) barrier_arrive_after_runs(full, n_tiles * n_bytes);
      if (tile < n_tiles)
        copy_run(m.at + turn.slot * m.slot_bytes + tile * P::kStageChunks * chunk_bytes,
                 from + std::size_t{chunk} * chunk_bytes, n_bytes, full);
    }
  }
}

// Eight elements of a row of x, to shared memory.
__device__ inline void bring_piece(const WideArgs& p,
                                   std::uint32_t to,
                                   std::uint32_t row,
                                   std::uint32_t piece) {
  if (p.x)
    return copy16(to,
                  static_cast<const uint4*>(p.x) + (piece / 8 * 8 + row) * 8 + (piece % 8 ^ row));
  const auto* const from = reinterpret_cast<const float4*>(p.x_rows + row * p.x_stride + piece * 8);
  const float4 a = piece * 8 < p.format.n_in ? from[0] : float4{},
               b = piece * 8 + 4 < p.format.n_in ? from[1] : float4{};
  store16(to, {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)});
}

// By kXWarps: x as bf16, in each stage a row after another.
__device__ inline void bring_whole_x(const WideArgs& p, const MmaX& x) {
  using P = MmaPlan;
  constexpr unsigned kThreads = 32 * P::kXWarps;
  const unsigned thread = threadIdx.x % kThreads;
  const std::uint32_t n_pieces = chunks_of(p.format.k) * (kChunkK / 8);
  await_previous();
  for (std::uint32_t stage = 0, begin = 0; begin < n_pieces; ++stage, begin += P::kPieces) {
    const std::uint32_t n = min(P::kPieces, n_pieces - begin), to = x.at + stage * x.stage_bytes;
    for (std::uint32_t i = thread; i < P::kPieces * p.n_rows; i += kThreads) {
      const std::uint32_t row = i / P::kPieces, piece = i % P::kPieces;
      if (piece < n) bring_piece(p, to + row * P::kRowBytes + piece * 16, row, begin + piece);
    }
    p.x ? barrier_arrive_after_copies(x.full(stage)) : barrier_arrive(x.full(stage));
  }
  copies_wait();
}

// Of a warp in a pass.
struct MmaSlab {
  std::uint32_t unit, tile;  // tile: in the pass; the first of two when gated
  unsigned half;
  bool is_there;
  __device__ MmaSlab(const MmaShare& share, std::uint32_t pass, unsigned warp, SlabRows rows) {
    const bool is_half = rows != SlabRows::whole;
    const unsigned in_pass = is_half ? warp / 2 : warp;
    unit = share.unit(share.first_turn(pass) + in_pass);
    tile = rows == SlabRows::gated ? in_pass * 2 : in_pass;
    half = is_half ? warp % 2 : 0;
    is_there = in_pass < share.n_in(pass);
  }
};

// A warp's way through slabs. kGroup: of the weights, or 0: as the arguments say.
template <class F, SlabRows kRows, unsigned kGroup>
struct MmaChain {
  using P = MmaPlan;
  static constexpr unsigned kScaleSteps = kGroup > 0 ? kGroup / 16 : F::kScaleSteps;
  using Chunk = WideChunk<F, kRows, kScaleSteps>;
  using Codes = WideCodes<F, kRows, kScaleSteps>;
  const WideArgs& p;
  const WideMemory& m;
  const MmaX& x;
  WideWalk walk;
  std::uint32_t of_lane;  // a lane's place in a stage of x

  __device__ MmaChain(const WideArgs& args, const WideMemory& memory, const MmaX& x_of)
      : p(args), m(memory), x(x_of), walk(memory, args.n_slots) {
    const unsigned lane = threadIdx.x % 32, row = lane % 8 < p.n_rows ? lane % 8 : 0;
    of_lane = row * P::kRowBytes + lane / 8 * 16;
  }
  __device__ std::uint32_t chunk_bytes() const {
    return kGroup > 0 ? codes_bytes(F::kCode) + kChunkK / kGroup * kTileRows * F::kRowBytes
                      : p.format.chunk_bytes;
  }
  __device__ std::uint32_t enter_x(unsigned stage) const {
    barrier_wait(x.full(stage), 0);
    return x.at + stage * x.stage_bytes + of_lane;
  }
  // b: x of the first two steps; then of what follows the chunk, at next.
  __device__ void multiply(const Codes& codes,
                           const Chunk& chunk,
                           std::uint32_t of_x,
                           std::uint32_t next,
                           std::uint32_t (&b)[4],
                           float (&sums)[4]) const {
#pragma unroll
    for (unsigned step = 0; step < kSteps; step += 2) {
      std::uint32_t ahead[4], a[4];
      ldmatrix_x4(ahead, step + 2 < kSteps ? of_x + (step + 2) * 32 : next);
      codes.decode(chunk, step, a);
      mma_bf16(sums, a, b[0], b[1]);
      codes.decode(chunk, step + 1, a);
      mma_bf16(sums, a, b[2], b[3]);
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) b[i] = ahead[i];
    }
  }
  // Codes of the chunk that follows are fetched while one is multiplied.
  __device__ void run(const MmaSlab& slab, float (&sums)[4]) {
    constexpr unsigned kStage = P::kStageChunks;
    constexpr std::uint32_t kChunkX = 2 * kChunkK;  // bytes of a row
    const unsigned shift =
        31u - static_cast<unsigned>(__clz(static_cast<int>(kGroup > 0 ? kGroup : p.format.group)));
    const Codes codes{threadIdx.x % 32, shift, static_cast<float>(p.format.offset), slab.half};
    const unsigned char* const first = m.ring + slab.tile * kStage * chunk_bytes();
    const unsigned char* const second =
        kRows == SlabRows::gated ? first + kStage * chunk_bytes() : first;
    const auto fetch = [&](unsigned slot, unsigned chunk, Chunk& to) {
      const std::uint32_t at = slot * m.slot_bytes + chunk * chunk_bytes();
      codes.fetch(first + at, second + at, to);
    };
    Chunk chunks[2];
    std::uint32_t b[4];
    unsigned slot = walk.enter(), stage = 0;
    fetch(slot, 0, chunks[0]);
    std::uint32_t at = enter_x(stage);
    ldmatrix_x4(b, at);
    std::uint32_t left = chunks_of(p.format.k);
    for (; left >= kStage; left -= kStage) {
      const unsigned before = slot;
      const std::uint32_t here = at;
      WideWalk::Next next{};
#pragma unroll
      for (unsigned i = 0; i < kStage; ++i) {
        if (i + 1 < kStage) {
          fetch(before, i + 1, chunks[(i + 1) % 2]);
        } else if (left > kStage) {
          slot = walk.enter(next);
          fetch(slot, 0, chunks[0]);
          at = enter_x(++stage);
        }
        if (i + 2 == kStage) next = walk.look();  // past the last one, no stage's
        multiply(codes, chunks[i % 2], here + i * kChunkX,
                 i + 1 < kStage ? here + (i + 1) * kChunkX : at, b, sums);
        if (i + 2 == kStage) walk.leave(before);
      }
    }
    if (left == 0) return;
    for (unsigned i = 0; i < left; ++i) {  // of a last stage that is not whole
      const Chunk now = chunks[0];
      if (i + 1 < left) fetch(slot, i + 1, chunks[0]);
      multiply(codes, now, at + i * kChunkX, at + (i + 1 < left ? i + 1 : i) * kChunkX, b, sums);
    }
    walk.leave(slot);
  }
  __device__ void skip() {
    for (unsigned i = 0; i < P::stages(p.format.k); ++i) walk.leave(walk.enter());
  }
};

// A thread has two outputs of each of two rows, or those of gate and up.
template <SlabRows kRows>
__device__ inline void store_mma_slab(const WideArgs& p,
                                      const MmaSlab& slab,
                                      const float (&sums)[4]) {
  const unsigned lane = threadIdx.x % 32;
  const WidePart& part = kRows == SlabRows::gated ? p.parts[0] : part_of(p, slab.unit);
  const std::uint32_t output = (slab.unit - part.first_tile) * 16 + 8 * slab.half + lane / 4;
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t row = lane % 4 * 2 + i;
    if (row >= p.n_rows) continue;
    if constexpr (kRows == SlabRows::gated) {
      if (output < part.n_out)
        put_one(p, row, output,
                activate(p.activation, p.limit, biased(sums[i], p.parts[0].bias, output),
                         biased(sums[i + 2], p.parts[1].bias, output)));
    } else {
      if (output < part.n_out)
        put_one(p, row, part.out_column + output, biased(sums[i], part.bias, output));
      if (output + 8 < part.n_out)
        put_one(p, row, part.out_column + output + 8, biased(sums[i + 2], part.bias, output + 8));
    }
  }
}

template <class F, SlabRows kRows, unsigned kGroup>
__device__ inline void multiply_slabs(
    const WideArgs& p, const MmaShare& share, const WideMemory& m, const MmaX& x, unsigned warp) {
  MmaChain<F, kRows, kGroup> chain(p, m, x);
  for (std::uint32_t pass = 0; pass < share.n_passes; ++pass) {
    const MmaSlab slab(share, pass, warp, kRows);
    if (!slab.is_there) {
      chain.skip();
      continue;
    }
    float sums[4] = {};
    chain.run(slab, sums);
    store_mma_slab<kRows>(p, slab, sums);
  }
}

template <class F, SlabRows kRows, unsigned kGroup>
__global__ void __launch_bounds__(MmaPlan::kMaxThreads, 1)
    wide_mma_kernel(const __grid_constant__ WideArgs p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using P = MmaPlan;
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  const unsigned n_warps = blockDim.x / 32 - P::kHelpers / 32;  // that multiply
  const std::uint32_t begin = shared_address(wide_shared), ring = P::ring_at(p.format.k, p.n_rows);
  const WideMemory m{wide_shared + ring, begin, begin + ring,
                     p.pass_tiles * P::kStageChunks * p.format.chunk_bytes, 0};
  const MmaX x{begin + P::kXBarriersAt, begin + P::x_at(p.format.k), p.n_rows * P::kRowBytes};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(m.full(i), 1);
      barrier_init(m.empty(i), n_warps);
    }
    for (unsigned i = 0; i < P::stages(p.format.k); ++i) barrier_init(x.full(i), 32 * P::kXWarps);
    barriers_are_initialised();
    let_next_start();
  }
  __syncthreads();
  const MmaShare share(p);
  const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp < n_warps) {
    multiply_slabs<F, kRows, kGroup>(p, share, m, x, warp);
  } else if (warp < n_warps + P::kXWarps) {
    bring_whole_x(p, x);
  } else {
    bring_tiles(p, share, m, warp - n_warps - P::kXWarps);
  }
#endif
}

// Whether it served: blocks have many tiles, and x has room.
template <class F, unsigned kGroup>
bool launch_mma_group(Queue& queue, WideArgs p) {
  using P = MmaPlan;
  const unsigned grain = p.is_gated ? 2 : 1, n_units = p.n_tiles / grain;
  const unsigned n_turns = (n_units + p.n_sms - 1) / p.n_sms;
  const unsigned tile_bytes = P::kStageChunks * p.format.chunk_bytes;
  const unsigned ring_at = P::ring_at(p.format.k, p.n_rows);
  const unsigned fitting =
      ring_at < P::kRoom ? (P::kRoom - ring_at) / P::kFewestSlots / tile_bytes : 0;
  const unsigned wanted = p.is_gated ? P::kPassSlabs : P::kPassSlabs / 2 + 1;
  const unsigned most = (fitting < wanted ? fitting : wanted) / grain;
  if (most == 0 || n_turns * grain <= WidePlan<F, 8>::kPassTiles) return false;
  p.n_passes = (n_turns + most - 1) / most;
  p.pass_tiles = (n_turns + p.n_passes - 1) / p.n_passes * grain;
  const unsigned slot_bytes = p.pass_tiles * tile_bytes;
  const unsigned fit = (P::kRoom - ring_at) / slot_bytes;
  p.n_slots = fit < kWideSlots ? fit : kWideSlots;
  const auto launch = [&]<SlabRows kRows>() {
    queue.launch_early(&wide_mma_kernel<F, kRows, kGroup>, dim3((n_units + n_turns - 1) / n_turns),
                       p.pass_tiles * 32 + P::kHelpers,
                       ring_at + std::size_t{p.n_slots} * slot_bytes, p);
  };
  p.is_gated ? launch.template operator()<SlabRows::gated>()
             : launch.template operator()<SlabRows::whole>();
  return true;
}

}  // namespace kvasir::backend::cuda
