#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {

void pick(ops::Device& device, const ops::PickArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const std::uint32_t vocab = a.scores.n_cols;
  cpu.split(a.scores.n_rows, std::size_t{a.scores.n_rows} * vocab,
            [&](std::size_t begin, std::size_t end, int) {
              for (std::size_t r = begin; r < end; ++r)
                a.picked[r] = ops::pick_token({a.scores.row(r), vocab}, a.rows[r]);
            });
}

}  // namespace kvasir::backend::cpu
