// The few instructions that products are made of.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace kvasir::backend::cuda {

// d += a · b of m16n8k16, bf16 operands, f32 sums.
__device__ inline void mma_bf16(float (&d)[4],
                                const std::uint32_t (&a)[4],
                                std::uint32_t b0,
                                std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Stays on its side of a barrier, but other memory accesses may pass it.
__device__ inline void ldmatrix_x4(std::uint32_t* r, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// 16 bytes to shared memory, the last 16 - n_bytes of them zeros.
__device__ inline void copy16(std::uint32_t to, const void* from, std::uint32_t n_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(n_bytes)
               : "memory");
}
__device__ inline void copy4(std::uint32_t to, const void* from, std::uint32_t n_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(n_bytes)
               : "memory");
}
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Two floats as bf16, nearest even; lo in the low half.
__device__ inline std::uint32_t pack_bf16(float lo, float hi) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(hi), "f"(lo));
  return out;
}

}  // namespace kvasir::backend::cuda
