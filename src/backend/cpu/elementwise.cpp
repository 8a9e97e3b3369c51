// Element-wise ops and norms: rows shared between threads where there are enough of them.
#include <cstring>

#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {
namespace {

using RowsKernel = void (*)(const RowsJob&, std::uint32_t, std::uint32_t);

void run_rows(ops::Device& device,
              const RowsJob& job,
              std::size_t n_rows,
              std::size_t weight,
              RowsKernel kernel) {
  cpu_of(device).split(
      n_rows, n_rows * job.n_cols * weight, [&](std::size_t begin, std::size_t end, int) {
        kernel(job, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
      });
}

}  // namespace

void rms_norm(ops::Device& device, const ops::RmsNormArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const NormJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .out = a.out.data,
                    .out_stride = a.out.stride,
                    .weight = a.weight,
                    .bias = nullptr,
                    .n_cols = a.x.n_cols,
                    .group = a.group,
                    .eps = a.eps};
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().rms_norm(job, static_cast<std::uint32_t>(begin),
                                     static_cast<std::uint32_t>(end));
            });
}

void layer_norm(ops::Device& device, const ops::LayerNormArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const NormJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .out = a.out.data,
                    .out_stride = a.out.stride,
                    .weight = a.weight,
                    .bias = a.bias,
                    .n_cols = a.x.n_cols,
                    .group = a.x.n_cols,
                    .eps = a.eps};
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols * 2,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().layer_norm(job, static_cast<std::uint32_t>(begin),
                                       static_cast<std::uint32_t>(end));
            });
}

void rope(ops::Device& device, const ops::RopeArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const RopeJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .positions = a.positions.data(),
                    .cos = a.cos,
                    .sin = a.sin,
                    .n_cols = a.x.n_cols,
                    .head_dim = a.head_dim,
                    .n_pairs = a.n_pairs,
                    .interleaved = a.interleaved};
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().rope(job, static_cast<std::uint32_t>(begin),
                                 static_cast<std::uint32_t>(end));
            });
}

void act_mul(ops::Device& device, const ops::ActMulArgs& a) noexcept {
  const RowsJob job{.x = a.gate.data,
                    .x_stride = a.gate.stride,
                    .y = a.up.data,
                    .y_stride = a.up.stride,
                    .out = a.out.data,
                    .out_stride = a.out.stride,
                    .n_cols = a.gate.n_cols,
                    .alpha = a.limit,
                    .softcap = 0.0f};
  run_rows(device, job, a.gate.n_rows, 8,
           cpu_of(device).kernels().act_mul[static_cast<std::size_t>(a.activation)]);
}

void gate_rows(ops::Device& device, const ops::GateRowsArgs& a) noexcept {
  const RowsJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .y = a.gate.data,
                    .y_stride = a.gate.stride,
                    .out = a.x.data,
                    .out_stride = a.x.stride,
                    .n_cols = a.x.n_cols,
                    .alpha = 1.0f,
                    .softcap = 0.0f};
  run_rows(device, job, a.x.n_rows, 1, cpu_of(device).kernels().gate_rows);
}

void add_scaled(ops::Device& device, const ops::AddScaledArgs& a) noexcept {
  const RowsJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .y = a.y.data,
                    .y_stride = a.y.stride,
                    .out = a.x.data,
                    .out_stride = a.x.stride,
                    .n_cols = a.x.n_cols,
                    .alpha = a.alpha,
                    .softcap = 0.0f};
  run_rows(device, job, a.x.n_rows, 1, cpu_of(device).kernels().add_scaled);
}

void scale(ops::Device& device, const ops::ScaleArgs& a) noexcept {
  const RowsJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .y = a.x.data,
                    .y_stride = a.x.stride,
                    .out = a.x.data,
                    .out_stride = a.x.stride,
                    .n_cols = a.x.n_cols,
                    .alpha = a.alpha,
                    .softcap = a.softcap};
  run_rows(device, job, a.x.n_rows, a.softcap > 0.0f ? 8 : 1, cpu_of(device).kernels().scale);
}

void gather_rows(ops::Device& device, const ops::GatherRowsArgs& a) noexcept {
  cpu_of(device).split(
      a.rows.size(), a.rows.size() * a.x.n_cols / 2, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t i = begin; i < end; ++i) {
          std::memcpy(a.out.row(i), a.x.row(a.rows[i]), a.x.n_cols * sizeof(float));
        }
      });
}

}  // namespace kvasir::backend::cpu
