#include "backend/cuda/device/pick.h"

#include <algorithm>

#include "backend/cuda/detail/cuda_ops.h"

namespace kvasir::backend::cuda {

static_assert(sizeof(PickRow) == sizeof(kvasir::PickRow));

void pick(ops::Device& device, const ops::PickArgs& a) noexcept {
  if (a.scores.n_rows == 0) return;
  CudaDevice& cuda = cuda_of(device);
  const std::uint32_t n_chunks = pick_chunks(a.scores.n_cols);
  const std::size_t n = std::size_t{a.scores.n_rows} * n_chunks;
  const bool any_drawn = std::any_of(a.rows.begin(), a.rows.end(), [](const kvasir::PickRow& row) {
    return row.kind == kvasir::PickKind::drawn;
  });
  launch_pick(cuda.queue(), {.scores = mat_of(a.scores),
                             .rows = reinterpret_cast<const PickRow*>(cuda.stage(a.rows)),
                             .peaks = cuda.workspace<PickPeak>(0, n),
                             .draws = any_drawn ? cuda.workspace<PickDraw>(1, n) : nullptr,
                             .picked = a.picked,
                             .n_chunks = n_chunks,
                             .pad = 0});
}

}  // namespace kvasir::backend::cuda
