// The ring of wide products: what a block's helpers bring to shared memory, and how those that
// multiply walk it. A stage is 128 elements of K of dense weights, 256 of quantized ones, and of x.
#pragma once

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/device/wide.h"
#include "backend/cuda/device/wide_mma.cuh"

namespace kvasir::backend::cuda {

// Shared memory: barriers of slots that are full, that are empty, and slots.
constexpr unsigned kWideSlots = 32, kWideEmptyAt = 8 * kWideSlots, kWideRingAt = 16 * kWideSlots;
constexpr unsigned kWarpgroup = 128, kGroupTiles = 4;

template <class F, int kNOf>
struct WidePlan {
  static constexpr unsigned kN = kNOf;  // rows of x
  static constexpr unsigned kStageChunks = F::kIsDense ? 1 : 2, kStagePanels = 2 * kStageChunks;
  static constexpr unsigned kWeightThreads = F::kIsDense ? 128 : 64;
  static constexpr unsigned kHelpers = kWeightThreads + 32;
  static constexpr unsigned kPassTiles = 2 * kGroupTiles;
  static constexpr unsigned kMaxThreads = 2 * kWarpgroup + kHelpers;
  static constexpr unsigned kRoom = 200u << 10;  // of slots: small kernels find room beside it
  static constexpr unsigned kXPanel = kN * 128;  // 64 elements of K of all rows
  __host__ __device__ static unsigned weight_bytes(unsigned pass_tiles, unsigned chunk_bytes) {
    return F::kIsDense ? pass_tiles * 4096
                       : (pass_tiles * kStageChunks * chunk_bytes + 1023) / 1024 * 1024;
  }
  __host__ __device__ static unsigned slot_bytes(unsigned pass_tiles, unsigned chunk_bytes) {
    return weight_bytes(pass_tiles, chunk_bytes) + kStagePanels * kXPanel;
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

// A block's tiles, in passes of about equal length, as many in every block; quantized gated ones by
// twos, which share the two packed tiles that they are halves of.
struct WideShare {
  std::uint32_t first, n_units, n_passes, grain;
  struct Pass {
    std::uint32_t first, n;
  };
  __device__ WideShare(const WideArgs& p, bool by_twos)
      : n_passes(p.n_passes), grain(by_twos ? 2 : 1) {
    const std::uint32_t n_all = p.n_tiles / grain;
    first = static_cast<std::uint32_t>(std::uint64_t{blockIdx.x} * n_all / gridDim.x);
    n_units = static_cast<std::uint32_t>((blockIdx.x + 1ull) * n_all / gridDim.x) - first;
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

// A pass of at most kTiles tiles, by 128 threads, 16 bytes each time, of 8 rows at once. What is
// not there costs instructions all the same: few tiles have kTiles few.
template <class P, unsigned kTiles>
__device__ inline void bring_tiles(const WideArgs& p,
                                   const WideMemory& m,
                                   const WideShare::Pass& pass,
                                   WideTurn& turn) {
  const unsigned thread = threadIdx.x % P::kWeightThreads, piece = thread % 16, row = thread / 16;
  const std::uint32_t panel = p.pass_tiles * 2048, n_stages = chunks_of(p.format.k);
  const std::uint32_t place = piece / 8 * panel + row * 128 + (piece % 8 ^ row) * 16;
  const unsigned char* from[2 * kTiles];
#pragma unroll
  for (unsigned j = 0; j < 2 * kTiles; ++j)
    from[j] = rows_of_half(p, min(pass.first + j / 2, p.n_tiles - 1), j % 2, row) + piece * 16;
  for (std::uint32_t stage = 0; stage < n_stages; ++stage, turn.next()) {
    const std::uint32_t to = m.at + turn.slot * m.slot_bytes + place;
    const std::uint32_t n_bytes = stage * kChunkK + piece * 8 < p.format.k ? 16 : 0;
    barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
#pragma unroll
    for (unsigned j = 0; j < 2 * kTiles; ++j)
      if (j < 2 * pass.n)
        copy16(to + j * 1024, from[j] + std::size_t{n_bytes ? stage : 0} * 256, n_bytes);
    barrier_arrive_after_copies(m.full(turn.slot));
  }
}

template <class P>
__device__ inline void bring_dense(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  WideTurn turn{p.n_slots};
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    if (P::kN <= 16 && p.pass_tiles == 2) {
      bring_tiles<P, 2>(p, m, pass, turn);
    } else if (P::kN <= 16 && p.pass_tiles <= 4) {
      bring_tiles<P, 4>(p, m, pass, turn);
    } else {
      bring_tiles<P, P::kPassTiles>(p, m, pass, turn);
    }
  }
  copies_wait();
}

// The chunks of each tile, one after another, by a lane a tile: copies of one warp follow one
// another slowly, so there are several.
template <class P>
__device__ inline void bring_codes(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  constexpr unsigned kWarps = P::kWeightThreads / 32;
  const unsigned tile_in_pass = threadIdx.x % 32 * kWarps + threadIdx.x / 32 % kWarps;
  const std::uint32_t n_chunks = chunks_of(p.format.k), chunk_bytes = p.format.chunk_bytes;
  WideTurn turn{p.n_slots};
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    const WideShare::Pass pass = share.pass(i);
    const std::uint32_t tile = min(pass.first + tile_in_pass, p.n_tiles - 1);
    const WidePart& part = p.is_gated ? p.parts[tile % 2] : part_of(p, tile);
    const std::uint32_t of_part = p.is_gated ? tile / 2 : tile - part.first_tile;
    const auto* const from = static_cast<const unsigned char*>(part.data) +
                             std::size_t{of_part} * n_chunks * chunk_bytes;
    for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += P::kStageChunks, turn.next()) {
      const std::uint32_t full = m.full(turn.slot);
      const std::uint32_t n_bytes = min(P::kStageChunks, n_chunks - chunk) * chunk_bytes;
      barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
      if (tile_in_pass == 0) barrier_arrive_after_runs(full, pass.n * n_bytes);
      if (tile_in_pass < pass.n)
        copy_run(m.at + turn.slot * m.slot_bytes + tile_in_pass * P::kStageChunks * chunk_bytes,
                 from + std::size_t{chunk} * chunk_bytes, n_bytes, full);
    }
  }
}

// By one thread: panels of 64 elements of K, of the rows that are there, as convert_wide lays them
// out. What lies in places of other rows shows in no row's results.
template <class P>
__device__ inline void bring_x(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  if (threadIdx.x % 32 > 0) return;
  const std::uint32_t n_chunks = chunks_of(p.format.k), row0 = blockIdx.y * P::kN;
  const std::uint32_t bytes = min(p.n_rows - row0, P::kN) * 128;
  const auto* const from =
      static_cast<const unsigned char*>(p.x) + std::size_t{blockIdx.y} * 2 * n_chunks * P::kXPanel;
  WideTurn turn{p.n_slots};
  await_previous();
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += P::kStageChunks, turn.next()) {
      const std::uint32_t to = m.at + turn.slot * m.slot_bytes + m.x_at, full = m.full(turn.slot);
      const unsigned n_panels = 2 * min(P::kStageChunks, n_chunks - chunk);
      barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
      barrier_arrive_after_runs(full, n_panels * bytes);
#pragma unroll
      for (unsigned panel = 0; panel < P::kStagePanels; ++panel)
        if (panel < n_panels)
          copy_run(to + panel * P::kXPanel, from + std::size_t{2 * chunk + panel} * P::kXPanel,
                   bytes, full);
    }
  }
}

__device__ inline void store8(std::uint32_t to, std::uint32_t lo, std::uint32_t hi) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(lo), "r"(hi) : "memory");
}

// By a warp: f32 rows, a stage of one at a time, rounded on their way; some are in flight.
template <class P>
__device__ inline void bring_rows(const WideArgs& p, const WideShare& share, const WideMemory& m) {
  constexpr unsigned kFlying = 8, kFours = P::kStageChunks;  // a thread's runs of four
  const unsigned lane = threadIdx.x % 32, in_stage = lane * 4 * kFours;
  const std::uint32_t n_stages = (chunks_of(p.format.k) + kFours - 1) / kFours;
  const std::uint32_t n_items = share.n_passes * n_stages * p.n_rows;
  const std::uint32_t place = in_stage / 64 * P::kXPanel + in_stage % 8 * 2;
  const std::uint32_t piece = in_stage % 64 / 8;
  float4 flying[kFlying][kFours];
  std::uint32_t next_stage = 0, next_row = 0;
  const auto fetch = [&](float4(&to)[kFours]) {
    const std::uint32_t k = next_stage * kChunkK * kFours + in_stage;
    const float* const from = p.x_rows + next_row * p.x_stride + k;
#pragma unroll
    for (unsigned i = 0; i < kFours; ++i)
      to[i] = k + 4 * i < p.format.n_in ? reinterpret_cast<const float4*>(from)[i] : float4{};
    if (++next_row < p.n_rows) return;
    next_row = 0;
    if (++next_stage == n_stages) next_stage = 0;
  };
  WideTurn turn{p.n_slots};
  await_previous();
#pragma unroll
  for (unsigned f = 0; f < kFlying; ++f) fetch(flying[f]);
  std::uint32_t row = 0;
  for (std::uint32_t item = 0; item < n_items; item += kFlying) {
#pragma unroll
    for (unsigned f = 0; f < kFlying; ++f) {
      if (item + f >= n_items) break;
      if (row == 0) barrier_wait(m.empty(turn.slot), turn.parity ^ 1);
      const std::uint32_t to =
          m.at + turn.slot * m.slot_bytes + m.x_at + place + row * 128 + (piece ^ row) * 16;
      const float4 a = flying[f][0], b = flying[f][kFours - 1];
      if constexpr (kFours == 1) {
        store8(to, pack_bf16(a.x, a.y), pack_bf16(a.z, a.w));
      } else {
        store16(to, {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y),
                     pack_bf16(b.z, b.w)});
      }
      fetch(flying[f]);
      if (++row < p.n_rows) continue;
      row = 0;
      order_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(m.full(turn.slot));
      turn.next();
    }
  }
}

// Stages as a warp walks them. All of its threads agree on each branch and slot in a way that the
// compiler sees: what hangs on them alone costs a warp one instruction, and descriptors are made of
// it.
class WideWalk {
 public:
  __device__ WideWalk(const WideMemory& m, unsigned n_slots) : m_(m), turn_{n_slots} {}

  // The next stage's slot, and whether it is full already: enter() need not wait for the answer.
  struct Next {
    unsigned slot;
    bool is_full;
  };
  __device__ Next look() const {
    const unsigned slot = __shfl_sync(0xffffffffu, turn_.slot, 0);
    return {slot, barrier_test(m_.full(slot), turn_.parity)};
  }
  // When it is full.
  __device__ unsigned enter(Next next) {
    while (!__all_sync(0xffffffffu, next.is_full))
      next.is_full = barrier_try(m_.full(next.slot), turn_.parity);
    turn_.next();
    return next.slot;
  }
  __device__ unsigned enter() { return enter(look()); }
  // Its products have ended.
  __device__ void leave(unsigned slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(m_.empty(slot));
  }

 private:
  const WideMemory& m_;
  WideTurn turn_;
};

}  // namespace kvasir::backend::cuda
