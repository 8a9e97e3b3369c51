// Products: what matrix products keep between calls: threads and pinned memory for repacking,
// tables of a mixture's weights on the device, and cuBLASLt where it may serve.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/detail/blas.h"
#include "backend/cuda/detail/cuda_matrix.h"
#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/product.h"
#include "base/thread_pool.h"
#include "ops/fused.h"
#include "ops/moe.h"

namespace kvasir::backend::cuda {

// Workspace slots of products (CudaDevice::workspace).
enum ProductSlot : int {
  kConvertedResult = 2,
  kProbe = 4,
  kBlas,
  kDecoded,
  kConverted,
  kRetiled,
  kTeamColumns
};

class Products {
 public:
  explicit Products(CudaDevice& device) : device_(device) {}

  ThreadPool& pool();
  // fill(unit, at) writes unit_bytes of each unit, on any thread; they go to `to` in order.
  Status upload(std::byte* to,
                std::size_t unit_bytes,
                std::size_t n_units,
                const std::function<void(std::size_t unit, std::byte* at)>& fill);

  // x as bf16 [n_rows, k]; the last one again if nothing has been launched since.
  // tile_rows: as tiles of so many rows (launch_convert_tiles); 0: as rows; kWideTiles: as wide
  // products read it.
  static constexpr std::uint32_t kWideTiles = 1;
  const void* converted(ConstMatView x, std::uint32_t k, std::uint32_t tile_rows);
  bool is_converted(ConstMatView x, std::uint32_t k, std::uint32_t tile_rows) const noexcept;
  // bf16 rows [n_rows, k] as wide products read them.
  const void* wide_tiles(const void* rows, std::uint32_t n_rows, std::uint32_t k);
  // Memory for a matrix as its products will read it, few rows as wide tiles, many as bf16 rows;
  // the launch that makes it writes there too; then keep_copy(). Null where columns would have to
  // be padded, or products read otherwise. Not what converted() gave last.
  enum class CopyOf : std::uint8_t { other, product };  // a product reads what was rounded last
  Bf16Copy copy_of_next(std::uint32_t n_rows, std::uint32_t n_cols, CopyOf of);
  // converted() of that matrix is what copy_of_next() gave, from now on.
  void keep_copy(ConstMatView x, const Bf16Copy& copy);
  // The launches since then wrote only `out`.
  void keep_converted(std::uint64_t since, ConstMatView out);

  // Weights of one shape and code, in device memory.
  struct Table {
    const Weight* weights;
    const float* const* biases;  // null: none
    Weight first;                // facts that all share
    std::uint32_t chunk_bytes;   // the largest
    std::uint32_t scale_kinds;   // bit i: some have ScaleKind i
  };
  Table table(std::span<const ops::PackedMatrix* const> matrices);
  enum Role : int { kGate, kUp, kDown };
  Table table(std::span<const ops::ExpertWeights> bank, Role role);
  Table table(std::span<const ops::LinearPart> parts);  // known by its first weight

  Blas& blas() noexcept { return blas_; }

 private:
  struct Known {  // a table by the host memory that lists its weights
    const void* list;
    std::size_t n;
    int role;
    Table table;
    Buffer data;
  };
  Table make_table(Known key,
                   const std::function<const ops::PackedMatrix*(std::size_t)>& matrix,
                   const std::function<const float*(std::size_t)>& bias);
  const Table* find_table(const void* list, std::size_t n, int role);

  CudaDevice& device_;
  std::unique_ptr<ThreadPool> pool_;
  Buffer pinned_;
  Blas blas_;
  std::vector<Known> tables_;
  std::uint64_t n_freed_ = 0;  // CudaMatrix::n_freed() of the tables

  ConstMatView converted_from_{};
  std::uint32_t converted_k_ = 0, converted_tile_rows_ = 0;
  std::uint64_t converted_at_ = 0;
  void* converted_data_ = nullptr;

  void remember(ConstMatView x, std::uint32_t k, std::uint32_t tile_rows, void* data);
};

// Products by whole warpgroups (device/wide.h) of parts that have one shape of K and type, outputs
// side by side. False, and nothing is done: not on this device, or not of these parts.
bool multiply_wide(CudaDevice& device,
                   ConstMatView x,
                   std::span<const ops::LinearPart> parts,
                   MatView out) noexcept;
// Of one weight; x: bf16 rows of w.k elements.
bool multiply_wide(
    CudaDevice& device, const Weight& w, const void* x, const float* bias, MatView out) noexcept;
// The same of gate and up, which end as out = act(gate) ⊙ up; is_rounded_only: out is not written,
// what it would hold is kept as bf16 (Products::keep_copy).
bool multiply_gated(CudaDevice& device,
                    ConstMatView x,
                    std::span<const ops::LinearPart> parts,
                    Act activation,
                    MatView out,
                    bool is_rounded_only) noexcept;
// Whether products of that weight with n_cols columns all take what Products::keep_copy() keeps.
bool takes_rounded(const Weight& w, std::uint32_t n_cols) noexcept;
// A launch for each kind of scales that weights of the table have.
void launch_grouped(CudaDevice& device, const Products::Table& table, ProductArgs args) noexcept;
// Whether kernels can take f32 rows as they lie: whole 16 bytes.
inline bool is_whole_pieces(ConstMatView x, std::uint32_t n_in, std::uint32_t step = 0) noexcept {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0 && n_in % 4 == 0 &&
         step % 4 == 0;
}

}  // namespace kvasir::backend::cuda
