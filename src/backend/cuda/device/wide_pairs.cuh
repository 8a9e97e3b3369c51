// Wide products of many rows: two blocks have different weights and one x, of which each brings
// half to both. A slot's x may be overwritten when both have left it.
#pragma once

#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/wide_ring.cuh"

namespace kvasir::backend::cuda {

constexpr unsigned kPair = 2;  // blocks
constexpr unsigned kAllEmptyAt = kWideRingAt, kPairsRingAt = kAllEmptyAt + 8 * kWideSlots;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KVASIR_PAIRS __cluster_dims__(kPair)
#else
#define KVASIR_PAIRS  // not launched
#endif

// Of a slot that both blocks have left.
__device__ inline std::uint32_t all_empty(const WideMemory& m, unsigned slot) {
  return m.barriers + kAllEmptyAt + 8 * slot;
}

// By a warp: its products of a slot have ended.
__device__ inline void leave_in_pair(const WideMemory& m, unsigned slot) {
  const unsigned lane = threadIdx.x % 32;
  __syncwarp();
  if (lane == 0) barrier_arrive(m.empty(slot));
  if (lane < kPair) barrier_arrive_at(all_empty(m, slot), lane);
}

class PairWalk : public WideWalk {
 public:
  __device__ PairWalk(const WideMemory& m, unsigned n_slots) : WideWalk(m, n_slots), memory_(m) {}
  __device__ void leave(unsigned slot) { leave_in_pair(memory_, slot); }

 private:
  const WideMemory& memory_;
};

// By one thread: every other panel of x, to both blocks.
template <class P>
__device__ inline void bring_shared_x(const WideArgs& p,
                                      const WideShare& share,
                                      const WideMemory& m) {
  if (threadIdx.x % 32 > 0) return;
  const unsigned rank = rank_in_cluster();
  const std::uint32_t n_chunks = chunks_of(p.format.k);
  const std::uint32_t bytes = min(p.n_rows - blockIdx.y * P::kN, P::kN) * 128;  // of a panel
  const auto* const from =
      static_cast<const unsigned char*>(p.x) + std::size_t{blockIdx.y} * 2 * n_chunks * P::kXPanel;
  WideTurn turn{p.n_slots};
  await_previous();
  for (std::uint32_t i = 0; i < share.n_passes; ++i) {
    for (std::uint32_t chunk = 0; chunk < n_chunks; chunk += P::kStageChunks, turn.next()) {
      const std::uint32_t to = m.at + turn.slot * m.slot_bytes + m.x_at, full = m.full(turn.slot);
      const unsigned n_panels = 2 * min(P::kStageChunks, n_chunks - chunk);
      barrier_wait(all_empty(m, turn.slot), turn.parity ^ 1);
      barrier_arrive_after_runs(full, n_panels * bytes);
#pragma unroll
      for (unsigned panel = 0; panel < P::kStagePanels; panel += kPair)
        if (panel < n_panels)
          copy_run_to_all(to + (panel + rank) * P::kXPanel,
                          from + (std::size_t{2 * chunk + panel} + rank) * P::kXPanel, bytes, full,
                          kPair);
    }
  }
}

// Blocks for so many tiles, or pairs of tiles.
inline unsigned blocks_in_pairs(unsigned n_units, unsigned n_sms) {
  const unsigned most = n_units < n_sms ? n_units : n_sms;
  return (most < kPair ? kPair : most) / kPair * kPair;
}

}  // namespace kvasir::backend::cuda
