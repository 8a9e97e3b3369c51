// A block stays on its multiprocessor and has a run of tiles of 16 weight rows, up to eight of them
// at a time: a pass. Four warps bring a pass's weights, two bring x, in stages of 128 elements of K
// through one ring that goes on from pass to pass; one or two warpgroups multiply, up to four tiles
// each. Weights are on their way before the kernels ahead have ended.
#pragma once

#include "backend/cuda/device/activation.cuh"
#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/wide.h"
#include "backend/cuda/device/wide_mma.cuh"

namespace kvasir::backend::cuda {

constexpr unsigned kWideSlots = 32, kWideEmptyAt = 8 * kWideSlots, kWideRingAt = 16 * kWideSlots;
constexpr unsigned kWarpgroup = 128, kWeightThreads = 128, kXThreads = 64;
constexpr unsigned kWideHelpers = kWeightThreads + kXThreads;
constexpr unsigned kGroupTiles = 4, kPassTiles = 2 * kGroupTiles;
// Dense tiles are read as 64 rows even where fewer are there: so much lies behind the last slot.
constexpr unsigned kReadBehind = 6144;

template <class F, int kN>
struct WidePlan {
  static constexpr unsigned kStageChunks = F::kIsDense ? 1 : 2;
  static constexpr unsigned kXPanel = kN * 128;  // 64 elements of K of all rows
  __host__ __device__ static unsigned weight_bytes(unsigned pass_tiles, unsigned chunk_bytes) {
    return F::kIsDense ? pass_tiles * 4096
                       : (pass_tiles * kStageChunks * chunk_bytes + 1023) / 1024 * 1024;
  }
  __host__ __device__ static unsigned slot_bytes(unsigned pass_tiles, unsigned chunk_bytes) {
    return weight_bytes(pass_tiles, chunk_bytes) + 2 * kStageChunks * kXPanel;
  }
};

struct WideTurn {
  unsigned n_slots, slot = 0, parity = 0;
  __device__ void next() {
    if (++slot < n_slots) return;
    slot = 0;
    parity ^= 1;
  }
};

// A block's tiles, in passes of about equal length; quantized gated ones by twos, which share the
// two packed tiles that they are halves of.
struct WideShare {
  std::uint32_t first, n_units, n_passes, grain;
  struct Pass {
    std::uint32_t first, n;
  };
  __device__ WideShare(const WideArgs& p, bool by_twos) {
    grain = by_twos ? 2 : 1;
    const std::uint32_t n_all = p.n_tiles / grain;
    first = static_cast<std::uint32_t>(std::uint64_t{blockIdx.x} * n_all / gridDim.x);
    n_units = static_cast<std::uint32_t>((blockIdx.x + 1ull) * n_all / gridDim.x) - first;
    const std::uint32_t of_pass = p.pass_tiles / grain;
    n_passes = (n_units + of_pass - 1) / of_pass;
  }
  __device__ Pass pass(std::uint32_t i) const {
    const std::uint32_t begin = i * n_units / n_passes, end = (i + 1) * n_units / n_passes;
    return {(first + begin) * grain, (end - begin) * grain};
  }
};

// Where a block's memory is.
struct WideMemory {
  unsigned char* ring;
  std::uint32_t barriers, at;  // shared addresses
  std::uint32_t slot_bytes, x_at;
  __device__ std::uint32_t full(unsigned slot) const { return barriers + 8 * slot; }
  __device__ std::uint32_t empty(unsigned slot) const { return barriers + kWideEmptyAt + 8 * slot; }
};

__device__ inline const WidePart& part_of(const WideArgs& p, std::uint32_t tile) {
  unsigned i = 0;
#pragma unroll
  for (unsigned j = 1; j < kMaxWideParts; ++j)
    if (j < p.n_parts && p.parts[j].first_tile <= tile) i = j;
  return p.parts[i];
}

// 8 rows of weights, of half a tile. Rows past the last output are the last one's.
__device__ inline const unsigned char* rows_of_half(const WideArgs& p,
                                                    std::uint32_t tile,
                                                    unsigned half,
                                                    unsigned row_in_half) {
  const WidePart& part = p.is_gated ? p.parts[half] : part_of(p, tile);
  const std::uint32_t row =
      p.is_gated ? tile * 8 + row_in_half : (tile - part.first_tile) * 16 + half * 8 + row_in_half;
  return static_cast<const unsigned char*>(part.data) +
         std::size_t{min(row, part.n_out - 1)} * (p.format.k * 2);
}

// By 128 threads, 16 bytes each time: of 8 rows at once.
__device__ inline void bring_dense(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  const unsigned thread = threadIdx.x % kWeightThreads, piece = thread % 16, row = thread / 16;
  const std::uint32_t panel = p.pass_tiles * 2048, n_stages = chunks_of(p.format.k);
  const std::uint32_t place = piece / 8 * panel + row * 128 + (piece % 8 ^ row) * 16;
  WideTurn turn{p.n_slots};
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    const unsigned char* from[2 * kPassTiles];
#pragma unroll
    for (unsigned j = 0; j < 2 * kPassTiles; ++j)
      from[j] = rows_of_half(p, pass.first + min(j / 2, pass.n - 1), j % 2, row) + piece * 16;
    for (std::uint32_t stage = 0; stage < n_stages; ++stage, turn.next()) {
      const std::uint32_t to = m.at + turn.slot * m.slot_bytes + place;
      const std::uint32_t n_bytes = stage * kChunkK + piece * 8 < p.format.k ? 16 : 0;
      barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
#pragma unroll
      for (unsigned j = 0; j < 2 * kPassTiles; ++j)
        if (j < 2 * pass.n)
          copy16(to + j * 1024, from[j] + std::size_t{n_bytes ? stage : 0} * 256, n_bytes);
      barrier_arrive_after_copies(m.full(turn.slot));
    }
  }
  copies_wait();
}

// By one thread: the chunks of each tile, one after another.
template <unsigned kStageChunks>
__device__ inline void bring_codes(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  if (threadIdx.x % kWeightThreads > 0) return;
  const std::uint32_t n_chunks = chunks_of(p.format.k), chunk_bytes = p.format.chunk_bytes;
  WideTurn turn{p.n_slots};
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    const unsigned char* from[kPassTiles];
#pragma unroll
    for (unsigned j = 0; j < kPassTiles; ++j) {
      const std::uint32_t tile = pass.first + min(j, pass.n - 1);
      const WidePart& part = p.is_gated ? p.parts[tile % 2] : part_of(p, tile);
      const std::uint32_t of_part = p.is_gated ? tile / 2 : tile - part.first_tile;
      from[j] = static_cast<const unsigned char*>(part.data) +
                std::size_t{of_part} * n_chunks * chunk_bytes;
    }
    for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += kStageChunks, turn.next()) {
      const std::uint32_t to = m.at + turn.slot * m.slot_bytes, full = m.full(turn.slot);
      const std::uint32_t n_bytes = min(kStageChunks, n_chunks - chunk) * chunk_bytes;
      barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
      barrier_arrive_after_runs(full, pass.n * n_bytes);
#pragma unroll
      for (unsigned j = 0; j < kPassTiles; ++j)
        if (j < pass.n)
          copy_run(to + j * kStageChunks * chunk_bytes, from[j] + std::size_t{chunk} * chunk_bytes,
                   n_bytes, full);
    }
  }
}

// By 64 threads: of 4 rows at once. What lies in places of rows that are not there shows in no
// other row's results.
template <class P>
__device__ inline void bring_x(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  constexpr unsigned kN = P::kXPanel / 128;
  const unsigned thread = threadIdx.x % kXThreads, piece = thread % 16, first = thread / 16;
  const std::uint32_t row0 = blockIdx.y * kN, n_rows = min(p.n_rows - row0, kN);
  const std::uint32_t n_chunks = chunks_of(p.format.k), row_bytes = p.x_stride * 2;
  const auto* from =
      static_cast<const unsigned char*>(p.x) + std::size_t{row0 + first} * row_bytes + piece * 16;
  const std::uint32_t place = m.x_at + piece / 8 * P::kXPanel + first * 128;
  WideTurn turn{p.n_slots};
  await_previous();
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += P::kStageChunks, turn.next()) {
      barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
#pragma unroll
      for (unsigned c = 0; c < P::kStageChunks; ++c) {
        const std::uint32_t to = m.at + turn.slot * m.slot_bytes + place + c * 2 * P::kXPanel;
        const bool is_there = (chunk + c) * kChunkK + piece * 8 < p.format.k;
        const unsigned char* const at = from + (is_there ? (chunk + c) * 256 : 0);
#pragma unroll
        for (unsigned j = 0; j < kN / 4; ++j) {
          const unsigned row = first + 4 * j;
          if (row < n_rows)
            copy16(to + j * 512 + (piece % 8 ^ row % 8) * 16, at + std::size_t{j} * 4 * row_bytes,
                   is_there ? 16 : 0);
        }
      }
      barrier_arrive_after_copies(m.full(turn.slot));
    }
  }
  copies_wait();
}

// Stages as a warpgroup walks them: it leaves a stage when the next one's products are on their
// way.
struct WideWalk {
  const WideMemory& m;
  WideTurn turn;
  std::uint32_t before = 0;
  bool has_before = false;

  __device__ unsigned enter() {
    barrier_wait(m.full(turn.slot), turn.parity);
    order_for_wgmma();
    return turn.slot;
  }
  __device__ void leave_before(unsigned slot) {
    if (has_before && threadIdx.x % 32 == 0) barrier_arrive(m.empty(before));
    before = slot;
    has_before = true;
    turn.next();
  }
  __device__ void leave_last() {
    if (threadIdx.x % 32 == 0) barrier_arrive(m.empty(before));
    has_before = false;
  }
};

// Waits until at most one batch of products is still on its way.
__device__ inline void wgmma_wait_but_one() {
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

template <int kN>
__device__ inline void multiply_dense(const WideArgs& p,
                                      const WideMemory& m,
                                      WideWalk& walk,
                                      unsigned group,
                                      bool has_tiles,
                                      float (&sums)[kN / 2]) {
  const std::uint32_t n_stages = chunks_of(p.format.k), panel = p.pass_tiles * 2048;
  for (std::uint32_t stage = 0; stage < n_stages; ++stage) {
    const unsigned slot = walk.enter();
    if (has_tiles) {
      const std::uint32_t at = m.at + slot * m.slot_bytes;
      const std::uint64_t a = rows_of_k(at + group * (kGroupTiles * 2048));
      const std::uint64_t b = rows_of_k(at + m.x_at);
      hold(sums);
      wgmma_fence();
#pragma unroll
      for (unsigned step = 0; step < kSteps; ++step)
        multiply_rows(sums, a + (step / 4 * (panel >> 4) + step % 4 * 2),
                      b + (step / 4 * (kN * 128 >> 4) + step % 4 * 2));
      wgmma_commit();
      wgmma_wait_but_one();
    }
    walk.leave_before(slot);
  }
  wgmma_wait();
  hold(sums);
  walk.leave_last();
}

// Which packed tiles a warp's 16 rows come from. Whole: one. Gated: a half of gate's and one of
// up's. Spread: half a tile, and 8 rows of nothing: where few tiles are there, more warps decode.
struct WideSlab {
  std::uint32_t tile;  // in the pass; the first of two when gated
  unsigned half;
  bool is_there;
  __device__ WideSlab(const WideArgs& p, const WideShare::Pass& pass, unsigned index) {
    const bool is_half = p.is_spread || p.is_gated;
    tile = p.is_spread ? index / 2 : index;
    half = is_half ? index % 2 : 0;
    is_there = tile < pass.n;
  }
};

// A chunk of a slab as operands of eight steps.
template <class F>
struct WideCodes {
  static constexpr unsigned kWords = F::kCode == Code::nibble ? 2 : 4;
  unsigned lane, group_shift;
  float offset;
  bool is_gated, is_spread;
  unsigned half;

  // first, second: the tile's chunk twice, or gate's and up's.
  __device__ void load(const unsigned char* first,
                       const unsigned char* second,
                       std::uint32_t (&a)[kSteps][4]) const {
    uint4 words[kWords];
#pragma unroll
    for (unsigned i = 0; i < kWords; ++i)
      words[i] = reinterpret_cast<const uint4*>(first)[i * 32 + lane];
    if (is_gated) {
      uint4 others[kWords];
#pragma unroll
      for (unsigned i = 0; i < kWords; ++i)
        others[i] = reinterpret_cast<const uint4*>(second)[i * 32 + lane];
      mix(words, others);
    } else if (half > 0) {
#pragma unroll
      for (unsigned i = 0; i < kWords; ++i) words[i] = second_half(words[i]);
    }
    const unsigned row = lane / 4 + 8 * half;
    decode_rows<0>(words, first + row * F::kRowBytes, a);
    if (!is_spread) decode_rows<1>(words, second + (is_gated ? row : row + 8) * F::kRowBytes, a);
  }

 private:
  // Rows lane / 4 (kRow 0) or those 8 further on of all steps; at: the row's first scale, less the
  // codes.
  template <int kRow>
  __device__ void decode_rows(const uint4* words,
                              const unsigned char* at,
                              std::uint32_t (&a)[kSteps][4]) const {
    RowScales scales;
#pragma unroll
    for (unsigned step = 0; step < kSteps; ++step) {
      if (step % F::kScaleSteps == 0)
        load_row_scales<F>(
            scales, kRow,
            at + codes_bytes(F::kCode) + (step * 16 >> group_shift) * (kTileRows * F::kRowBytes));
      if constexpr (F::kCode == Code::nibble) {
        const std::uint32_t word = word_of(words[step / 4], step % 4);
        decode_nibble_row<F, kRow>(word, scales, offset, a[step]);
      } else {
        const uint4 two = words[step / 2];
        decode_byte_row<F::kHasBias, kRow>(step % 2 ? two.z : two.x, step % 2 ? two.w : two.y,
                                           scales, offset, a[step]);
      }
    }
  }
  __device__ static std::uint32_t word_of(const uint4& four, unsigned i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
  }
  // The rows of a tile's second half where the first's are.
  __device__ static uint4 second_half(const uint4& w) {
    constexpr unsigned kBits = F::kCode == Code::nibble ? 4 : 16;
    return {w.x >> kBits, w.y >> kBits, w.z >> kBits, w.w >> kBits};
  }
  // Rows of the first tile's half before those of the second's.
  __device__ void mix(uint4* words, const uint4* others) const {
#pragma unroll
    for (unsigned i = 0; i < kWords; ++i) {
      mix(words[i].x, others[i].x);
      mix(words[i].y, others[i].y);
      mix(words[i].z, others[i].z);
      mix(words[i].w, others[i].w);
    }
  }
  __device__ void mix(std::uint32_t& word, std::uint32_t other) const {
    if constexpr (F::kCode == Code::nibble) {
      word = half == 0 ? (word & 0x0f0f0f0fu) | (other & 0x0f0f0f0fu) << 4
                       : (word >> 4 & 0x0f0f0f0fu) | (other & 0xf0f0f0f0u);
    } else {
      word = __byte_perm(word, other, half == 0 ? 0x5410 : 0x7632);
    }
  }
};

template <class F, int kN>
__device__ inline void multiply_codes(const WideArgs& p,
                                      const WideMemory& m,
                                      WideWalk& walk,
                                      const WideSlab& slab,
                                      bool has_slabs,
                                      float (&sums)[kN / 2]) {
  constexpr unsigned kStageChunks = WidePlan<F, kN>::kStageChunks;
  const std::uint32_t n_chunks = chunks_of(p.format.k), chunk_bytes = p.format.chunk_bytes;
  const WideCodes<F> codes{threadIdx.x % 32,
                           31u - static_cast<unsigned>(__clz(static_cast<int>(p.format.group))),
                           static_cast<float>(p.format.offset),
                           p.is_gated != 0,
                           p.is_spread != 0,
                           slab.half};
  const std::uint32_t first = (p.is_gated ? slab.tile / 2 * 2 : slab.tile) * kStageChunks,
                      second = p.is_gated ? first + kStageChunks : first;
  std::uint32_t a[kStageChunks][kSteps][4] = {};
  for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += kStageChunks) {
    const unsigned slot = walk.enter();
    const unsigned char* const at = m.ring + slot * m.slot_bytes;
    const std::uint64_t b = rows_of_k(m.at + slot * m.slot_bytes + m.x_at);
#pragma unroll
    for (unsigned c = 0; c < kStageChunks; ++c) {
      if (!has_slabs || chunk + c >= n_chunks) break;
      if (slab.is_there)
        codes.load(at + (first + c) * chunk_bytes, at + (second + c) * chunk_bytes, a[c]);
      hold(sums);
      wgmma_fence();
#pragma unroll
      for (unsigned step = 0; step < kSteps; ++step)
        multiply_values(sums, a[c][step],
                        b + ((c * 2 + step / 4) * (kN * 128 >> 4) + step % 4 * 2));
      wgmma_commit();
      wgmma_wait_but_one();
    }
    __syncwarp();
    walk.leave_before(slot);
  }
  wgmma_wait();
  hold(sums);
  walk.leave_last();
}

__device__ inline void put(const WideArgs& p,
                           std::uint32_t row,
                           std::uint32_t column,
                           float value) {
  if (p.out) p.out[row * p.out_stride + column] = value;
  if (p.copy)
    static_cast<__nv_bfloat16*>(p.copy)[std::size_t{row} * p.copy_stride + column] =
        __float2bfloat16_rn(value);
}

// A warp's slab.
template <int kN>
__device__ inline void store_slab(const WideArgs& p,
                                  std::uint32_t first_tile,
                                  const WideSlab& slab,
                                  const float (&sums)[kN / 2]) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t tile = first_tile + slab.tile;
  const WidePart& part = p.is_gated ? p.parts[0] : part_of(p, tile);
  const auto biased = [](float sum, const float* bias, std::uint32_t output) {
    return bias ? __fadd_rn(sum, bias[output]) : sum;
  };
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    const std::uint32_t row = blockIdx.y * kN + i / 4 * 8 + lane % 4 * 2 + i % 2;
    const bool is_second = i % 4 >= 2;  // of the slab's halves
    if (row >= p.n_rows || (is_second && (p.is_gated || p.is_spread))) continue;
    if (p.is_gated) {
      const std::uint32_t output = tile * 8 + lane / 4;
      if (output < part.n_out)
        put(p, row, output,
            activate(p.activation, p.limit, biased(sums[i], p.parts[0].bias, output),
                     biased(sums[is_second ? i : i + 2], p.parts[1].bias, output)));
    } else {
      const std::uint32_t output =
          (tile - part.first_tile) * 16 + lane / 4 + 8 * (is_second ? 1 : slab.half);
      if (output < part.n_out)
        put(p, row, part.out_column + output, biased(sums[i], part.bias, output));
    }
  }
}

template <class F, int kN>
__device__ inline void multiply_passes(const WideArgs& p,
                                       const WideShare& share,
                                       const WideMemory& m,
                                       unsigned group) {
  WideWalk walk{m, {p.n_slots}};
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    const unsigned first = group * kGroupTiles;
    const WideSlab slab(p, pass, first + threadIdx.x % kWarpgroup / 32);
    const bool has_slabs = first < (p.is_spread ? 2 * pass.n : pass.n);
    float sums[kN / 2] = {};
    if constexpr (F::kIsDense) {
      multiply_dense<kN>(p, m, walk, group, has_slabs, sums);
    } else {
      multiply_codes<F, kN>(p, m, walk, slab, has_slabs, sums);
    }
    if (slab.is_there) store_slab<kN>(p, pass.first, slab, sums);
  }
}

template <class F, int kN>
__global__ void __launch_bounds__(2 * kWarpgroup + kWideHelpers, 1)
    wide_kernel(const __grid_constant__ WideArgs p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using P = WidePlan<F, kN>;
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  const unsigned n_multiply = blockDim.x - kWideHelpers;  // threads
  const std::uint32_t begin = shared_address(wide_shared);
  const std::uint32_t at = (begin + kWideRingAt + 1023) / 1024 * 1024;
  const WideMemory m{wide_shared + (at - begin), begin, at,
                     P::slot_bytes(p.pass_tiles, p.format.chunk_bytes),
                     P::weight_bytes(p.pass_tiles, p.format.chunk_bytes)};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(m.full(i), (F::kIsDense ? kWeightThreads : 1) + kXThreads);
      barrier_init(m.empty(i), n_multiply / 32);
    }
    barriers_are_initialised();
    let_next_start();
  }
  __syncthreads();
  const WideShare share(p, !F::kIsDense && p.is_gated);
  // One value a warp, which the compiler sees: descriptors are made of it.
  const unsigned group = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroup, 0);
  if (threadIdx.x < n_multiply) {
    multiply_passes<F, kN>(p, share, m, group);
  } else if (threadIdx.x < n_multiply + kWeightThreads) {
    if constexpr (F::kIsDense) {
      bring_dense(p, share, m);
    } else {
      bring_codes<P::kStageChunks>(p, share, m);
    }
  } else {
    bring_x<P>(p, share, m);
  }
#endif
}

// pass_tiles, n_slots: what leaves room for the small kernels beside it.
template <class F, int kN>
void launch_wide_rows(Queue& queue, WideArgs p) {
  using P = WidePlan<F, kN>;
  constexpr unsigned kRoom = 200u << 10;
  const unsigned grain = !F::kIsDense && p.is_gated ? 2 : 1;
  const unsigned n_units = p.n_tiles / grain, n_blocks = n_units < p.n_sms ? n_units : p.n_sms;
  const unsigned most = (n_units + n_blocks - 1) / n_blocks * grain;  // tiles of a block
  const unsigned n_passes = (most + kPassTiles - 1) / kPassTiles;
  p.pass_tiles = ((most + n_passes - 1) / n_passes + grain - 1) / grain * grain;
  const unsigned slot_bytes = P::slot_bytes(p.pass_tiles, p.format.chunk_bytes);
  const unsigned fit = kRoom / slot_bytes;
  p.n_slots = fit < kWideSlots ? fit : kWideSlots;
  p.is_spread = !F::kIsDense && !p.is_gated && p.pass_tiles <= kGroupTiles;
  const unsigned n_slabs = p.is_spread ? 2 * p.pass_tiles : p.pass_tiles;
  const unsigned n_groups = n_slabs > kGroupTiles ? 2 : 1;
  queue.launch_early(&wide_kernel<F, kN>, dim3(n_blocks, (p.n_rows + kN - 1) / kN),
                     n_groups * kWarpgroup + kWideHelpers,
                     kWideRingAt + 1023 + std::size_t{p.n_slots} * slot_bytes + kReadBehind, p);
}

template <Code kCode, ScaleKind kScale, bool kHasBias>
void launch_wide_format(Queue& queue, const WideArgs& p) {
  using F = Format<kCode, kScale, kHasBias>;
  if (p.n_rows <= 8) return launch_wide_rows<F, 8>(queue, p);
  if (p.n_rows <= 16) return launch_wide_rows<F, 16>(queue, p);
  if constexpr (F::kIsDense)
    if (p.n_rows <= 32) return launch_wide_rows<F, 32>(queue, p);
  launch_wide_rows<F, 64>(queue, p);
}

template <Code kCode>
void launch_wide_code(Queue& queue, const WideArgs& p) {
  const bool has_bias = p.format.has_bias;
  switch (p.format.scale) {
    case ScaleKind::f32:
      return has_bias ? launch_wide_format<kCode, ScaleKind::f32, true>(queue, p)
                      : launch_wide_format<kCode, ScaleKind::f32, false>(queue, p);
    case ScaleKind::f16:
      return has_bias ? launch_wide_format<kCode, ScaleKind::f16, true>(queue, p)
                      : launch_wide_format<kCode, ScaleKind::f16, false>(queue, p);
    case ScaleKind::bf16:
      return launch_wide_format<kCode, ScaleKind::bf16, true>(queue, p);
  }
}

}  // namespace kvasir::backend::cuda
