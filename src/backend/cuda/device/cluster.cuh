// Blocks of a cluster: neighbours that run at the same time and reach each other's shared memory
// (sm_90). Shared addresses mean the same place in each of them. Alone, a block is a cluster of
// one.
#pragma once

#include <cstdint>

namespace kvasir::backend::cuda {

__device__ inline unsigned rank_in_cluster() {
  unsigned rank = 0;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// All threads of all blocks. Of what was written, it tells of initialised barriers alone.
__device__ inline void wait_for_cluster() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "barrier.cluster.arrive.relaxed;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
#endif
}

// At a block's barrier in shared memory. Tells of nothing but that its memory is no longer read: a
// release of the cluster's scope would cost about a microsecond.
__device__ inline void barrier_arrive_at(std::uint32_t barrier, unsigned rank) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
#endif
}

// A run of bytes (mma.cuh's copy_run) into the same place of n_blocks blocks; each one's barrier
// counts it.
__device__ inline void copy_run_to_all(std::uint32_t to,
                                       const void* from,
                                       std::uint32_t n_bytes,
                                       std::uint32_t barrier,
                                       unsigned n_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(n_bytes), "r"(barrier), "h"(static_cast<std::uint16_t>((1u << n_blocks) - 1))
      : "memory");
#endif
}

}  // namespace kvasir::backend::cuda
