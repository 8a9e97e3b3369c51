// cuBLASLt, loaded when it is first needed; without it the own kernels serve. It may only be called
// in eager steps. A way of computing is used after it gave the own kernel's bits on this device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace kvasir::backend::cuda {

struct BlasProduct {  // out[t, o] = Σ_k w[o, k] · x[t, k]
  const void* w;      // bf16 [n_out, k]
  const void* x;      // bf16 [n_rows, k]
  float* out;
  std::size_t out_stride;
  std::uint32_t n_out, n_rows, k;
};

class Blas {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  Blas();
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // Whether it multiplied. n_different(run): asked once for each way of computing and shape of
  // weight; run(product) multiplies that way, of the same shape; says how many outputs are not the
  // own kernel's.
  using Run = std::function<bool(const BlasProduct&)>;
  bool multiply(const BlasProduct& product,
                void* workspace,
                cudaStream_t stream,
                const std::function<std::uint32_t(const Run&)>& n_different);

  // Shapes of weights that were asked for: whether some way has the own kernel's bits.
  struct Choice {
    std::uint32_t n_out, k, n_rows;
    bool is_used;
  };
  std::vector<Choice> choices() const;
  bool is_there() const noexcept;  // after the first multiply()

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace kvasir::backend::cuda
