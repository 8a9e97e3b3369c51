// Kernels that begin before the one ahead of them in the stream has ended (Queue::launch_early).
// Before sm_90 both are nothing: such a device starts them one after another.
#pragma once

namespace kvasir::backend::cuda {

// Returns when all kernels ahead have ended and what they wrote is seen. A kernel launched early
// calls it before it reads or writes what they may touch, and in every launch: who waits for this
// kernel trusts that the ones ahead have ended too.
__device__ inline void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From when all blocks have called it (or ended), the next kernel may begin.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// At the top of a kernel that has nothing to prepare.
__device__ inline void begin_early() {
  let_next_start();
  await_previous();
}

}  // namespace kvasir::backend::cuda
