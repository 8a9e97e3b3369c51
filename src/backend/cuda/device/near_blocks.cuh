// Blocks of a cluster leave results in each other's shared memory, warps of a block wait for each
// other's copies (sm_90; older devices never launch what calls this).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace kvasir::backend::cuda {

// n blocks along x are a cluster.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KVASIR_CLUSTER(n) __cluster_dims__(n, 1, 1)
#else
#define KVASIR_CLUSTER(n)
#endif

// A place in shared memory with phases that end when so many arrivals have come.
__device__ inline void make_barrier(std::uint32_t barrier, std::uint32_t n_arrivals) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals)
               : "memory");
#endif
}
__device__ inline void arrive_at(std::uint32_t barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}
// An arrival when this thread's copies so far are there.
__device__ inline void arrive_with_copies(std::uint32_t barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}
__device__ inline void await_phase(std::uint32_t barrier, std::uint32_t parity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

// The block's first kThreads threads.
template <int kThreads>
__device__ void meet_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// By one thread, before tell_cluster(): the barrier's only phase ends when n_bytes have been sent
// to this block.
__device__ inline void expect_sent(std::uint32_t barrier, std::uint32_t n_bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\n"
      "fence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(n_bytes)
      : "memory");
#endif
}

// All threads of all blocks: what is sent to a block must not come before it expects it.
__device__ inline void tell_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void await_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// To the same place in block `rank`, whose barrier counts 8 bytes. A release at the end of a phase
// of the cluster would wait for all that this block has written, and take a microsecond.
__device__ inline void send_two(std::uint32_t rank,
                                std::uint32_t to,
                                std::uint32_t barrier,
                                float2 x) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .b32 there, counts;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counts, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, "
      "[counts];}" ::"r"(to),
      "r"(barrier), "r"(rank), "f"(x.x), "f"(x.y)
      : "memory");
#endif
}

}  // namespace kvasir::backend::cuda
