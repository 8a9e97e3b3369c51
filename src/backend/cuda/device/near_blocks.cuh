// Blocks of a cluster meet and reach each other's shared memory (sm_90; older devices never launch
// what calls this).
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

// All threads of the cluster's blocks but those that have ended; what they wrote is seen.
__device__ inline void meet_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
#endif
}

// An address of this block's shared memory as that of another block of the cluster.
__device__ inline std::uint32_t address_in(std::uint32_t block, std::uint32_t address) {
  std::uint32_t there = address;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
#endif
  return there;
}
__device__ inline float2 load_two_of_cluster(std::uint32_t address) {
  float2 x{};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
#endif
  return x;
}
__device__ inline float4 load_four_of_cluster(std::uint32_t address) {
  float4 x{};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address));
#endif
  return x;
}

}  // namespace kvasir::backend::cuda
