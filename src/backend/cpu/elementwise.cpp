// Element-wise ops and norms: rows shared between threads where there are enough of them.
#include <cstring>

#include "backend/cpu/detail/cpu_ops.h"
#include "backend/cpu/detail/row_jobs.h"

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
  const NormJob job = norm_job(a.x, a.out, a.weight, nullptr, a.group, a.eps);
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().rms_norm(job, static_cast<std::uint32_t>(begin),
                                     static_cast<std::uint32_t>(end));
            });
}

void layer_norm(ops::Device& device, const ops::LayerNormArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const NormJob job = norm_job(a.x, a.out, a.weight, a.bias, a.x.n_cols, a.eps);
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols * 2,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().layer_norm(job, static_cast<std::uint32_t>(begin),
                                       static_cast<std::uint32_t>(end));
            });
}

void rope(ops::Device& device, const ops::RopeArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const RopeJob job = rope_job(a);
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().rope(job, static_cast<std::uint32_t>(begin),
                                 static_cast<std::uint32_t>(end));
            });
}

void act_mul(ops::Device& device, const ops::ActMulArgs& a) noexcept {
  const RowsJob job = rows_job(a.gate, a.up, a.out, a.limit);
  run_rows(device, job, a.gate.n_rows, 8,
           cpu_of(device).kernels().act_mul[static_cast<std::size_t>(a.activation)]);
}

void gate_rows(ops::Device& device, const ops::GateRowsArgs& a) noexcept {
  const RowsJob job = rows_job(a.x, a.gate, a.x, 1.0f);
  run_rows(device, job, a.x.n_rows, 1, cpu_of(device).kernels().gate_rows);
}

void add_scaled(ops::Device& device, const ops::AddScaledArgs& a) noexcept {
  const RowsJob job = rows_job(a.x, a.y, a.x, a.alpha);
  run_rows(device, job, a.x.n_rows, 1, cpu_of(device).kernels().add_scaled);
}

void scale(ops::Device& device, const ops::ScaleArgs& a) noexcept {
  const RowsJob job = rows_job(a.x, a.x, a.x, a.alpha, a.softcap);
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
