// Where kernel launches go: onto the device's stream at once, or onto the list of the step in
// progress, which is then run as a captured graph. A kernel takes one plain struct by value, so a
// launch is plain data and two equal lists are the same work. What differs from step to step lies
// in memory that parameters point at, never in them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kvasir::backend::cuda {

constexpr std::size_t kMaxParams = 640;  // bytes of a kernel's struct

class Queue {
 public:
  virtual ~Queue() = default;

  // shared_bytes: dynamic shared memory; beyond 48 KiB the kernel's limit is raised here.
  template <class Params>
  void launch(void (*kernel)(Params),
              dim3 grid,
              unsigned n_threads,
              std::size_t shared_bytes,
              const Params& params) {
    launch(kernel, grid, n_threads, shared_bytes, params, Start::after);
  }
  // A kernel that calls await_previous() (device/chain.cuh) before it touches what others write.
  template <class Params>
  void launch_early(void (*kernel)(Params),
                    dim3 grid,
                    unsigned n_threads,
                    std::size_t shared_bytes,
                    const Params& params) {
    launch(kernel, grid, n_threads, shared_bytes, params, Start::early);
  }

  // Counts what may have changed device memory: while it stands still, so does the memory.
  std::uint64_t n_changes() const noexcept { return n_changes_; }
  void note_change() noexcept { ++n_changes_; }

 protected:
  // When a kernel begins: after the one before has ended, or as soon as that one lets it.
  enum class Start : std::uint16_t { after, early };

 private:
  std::uint64_t n_changes_ = 0;

  template <class Params>
  void launch(void (*kernel)(Params),
              dim3 grid,
              unsigned n_threads,
              std::size_t shared_bytes,
              const Params& params,
              Start start) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParams);
    ++n_changes_;
    enqueue(reinterpret_cast<const void*>(kernel), grid, n_threads, start, shared_bytes, &params,
            sizeof(Params));
  }

  virtual void enqueue(const void* kernel,
                       dim3 grid,
                       unsigned n_threads,
                       Start start,
                       std::size_t shared_bytes,
                       const void* params,
                       std::size_t params_bytes) = 0;
};

}  // namespace kvasir::backend::cuda
