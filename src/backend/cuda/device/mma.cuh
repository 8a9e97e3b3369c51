// The few instructions that products are made of.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/cuda/device/math.cuh"

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

__device__ inline void ldmatrix_x2(std::uint32_t* r, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address));
}

// 16 bytes to shared memory, the last 16 - n_bytes of them zeros.
__device__ inline void copy16(std::uint32_t to, const void* from, std::uint32_t n_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(n_bytes)
               : "memory");
}
__device__ inline void copy16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}

// Runs of bytes on their way from global to shared memory: multiples of 16, aligned to 16. A
// barrier in shared memory has a phase that ends when so many arrivals have come; who waits names
// the phase's parity. From sm_90 on runs are copied as a whole, before 16 bytes at a time.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kHasBulkCopies = true;
#else
constexpr bool kHasBulkCopies = false;
#endif

__device__ inline void barrier_init(std::uint32_t barrier, unsigned n_arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
}
// Copies see initialised barriers after this, other threads after a __syncthreads().
__device__ inline void barriers_are_initialised() {
  if constexpr (kHasBulkCopies) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(barrier)
               : "memory");
}
// An arrival when this thread's copies of 16 bytes so far are there.
__device__ inline void barrier_arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
// An arrival when n_bytes of this thread's runs are there.
__device__ inline void barrier_arrive_after_runs(std::uint32_t barrier, std::uint32_t n_bytes) {
  if constexpr (kHasBulkCopies) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(n_bytes)
                 : "memory");
  } else {
    barrier_arrive_after_copies(barrier);
  }
}
__device__ inline void barrier_wait(std::uint32_t barrier, unsigned parity) {
  if constexpr (kHasBulkCopies) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
  }
}
// Whether the phase has ended: at once, or after a while in which it may.
__device__ inline bool barrier_test(std::uint32_t barrier, unsigned parity) {
  std::uint32_t is_done;
  asm volatile(
      "{.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;}"
      : "=r"(is_done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_done != 0;
}
__device__ inline bool barrier_try(std::uint32_t barrier, unsigned parity) {
  if constexpr (kHasBulkCopies) {
    std::uint32_t is_done;
    asm volatile(
        "{.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;}"
        : "=r"(is_done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return is_done != 0;
  } else {
    return barrier_test(barrier, parity);
  }
}
__device__ inline void copy_run(std::uint32_t to,
                                const void* from,
                                std::uint32_t n_bytes,
                                std::uint32_t barrier) {
  if constexpr (kHasBulkCopies) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(n_bytes), "r"(barrier)
        : "memory");
  } else {
    for (std::uint32_t i = 0; i < n_bytes; i += 16)
      copy16(to + i, static_cast<const char*>(from) + i);
  }
}
__device__ inline void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ inline void zero16(std::uint32_t to) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

__device__ inline void store16(std::uint32_t to, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

}  // namespace kvasir::backend::cuda
