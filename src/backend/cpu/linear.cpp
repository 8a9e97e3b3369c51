// embed and linear: activations are rounded (and their group sums taken) once, then threads share
// the panels.
#include <algorithm>
#include <cstring>

#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {
namespace {

const std::uint8_t* bytes_of(const CpuMatrix& m) noexcept {
  return reinterpret_cast<const std::uint8_t*>(m.data.data());
}

// The product's own input: rounded to bf16 unless exact, padded with zeros to whole steps.
void prepare_row(
    const CpuDevice& device, const CpuMatrix& m, const float* x, float* out, float* sums) noexcept {
  if (m.round_x) {
    device.kernels().round_to_bf16(x, m.n_in(), out);
  } else {
    std::memcpy(out, x, m.n_in() * sizeof(float));
  }
  std::fill(out + m.n_in(), out + m.padded_in(), 0.0f);
  if (sums) device.kernels().group_sums(out, m.layout.group, m.layout.n_groups, sums);
}

bool takes_tiles(const CpuDevice& device, const CpuMatrix& m, std::uint32_t n_rows) noexcept {
  const KernelTable& kernels = device.kernels();
  const bool is_dense = m.layout.scale == ScaleKind::none;
  return kernels.pack_tiles && m.round_x && m.layout.code != CodeKind::f32 &&
         n_rows >= (is_dense ? kernels.fewest_tile_rows : kernels.fewest_quantized_tile_rows);
}

LinearJob prepare(CpuDevice& device, const CpuMatrix& m, const ops::LinearArgs& a) {
  const std::size_t n = a.x.n_rows, k = m.padded_in(), n_groups = m.layout.n_groups,
                    padded = (n + kRowAlign - 1) / kRowAlign * kRowAlign;
  const bool is_tiled = takes_tiles(device, m, a.x.n_rows);
  float* const x = is_tiled ? nullptr : device.inputs().floats(n * k);
  float* const sums = m.layout.has_bias ? device.sums().floats(padded * n_groups) : nullptr;
  std::uint16_t* const tiles =
      is_tiled ? reinterpret_cast<std::uint16_t*>(device.tiles().floats(padded * k / 2)) : nullptr;
  device.split(n, n * k, [&](std::size_t begin, std::size_t end, int part) {
    float* const own = is_tiled ? device.thread_scratch(part, k) : nullptr;
    for (std::size_t row = begin; row < end; ++row) {
      float* const to = is_tiled ? own : x + row * k;
      prepare_row(device, m, a.x.row(row), to, sums ? sums + row * n_groups : nullptr);
      if (is_tiled) device.kernels().pack_tiles(m.layout, to, row, tiles);
    }
  });
  return {.weight = bytes_of(m),
          .layout = m.layout,
          .x = x,
          .x_stride = k,
          .group_sums = sums,
          .n_rows = a.x.n_rows,
          .bias = a.bias,
          .out = a.out.data,
          .out_stride = a.out.stride,
          .n_out = m.n_out(),
          .x_tiles = tiles};
}

}  // namespace

void embed(ops::Device& device, const ops::EmbedArgs& a) noexcept {
  const CpuMatrix& m = matrix_of(a.table);
  CpuDevice& cpu = cpu_of(device);
  cpu.split(a.tokens.size(), a.tokens.size() * m.n_in() * kPanel,
            [&](std::size_t begin, std::size_t end, int) {
              for (std::size_t t = begin; t < end; ++t) {
                cpu.kernels().embed(bytes_of(m), m.layout, a.tokens[t], m.n_in(), a.scale,
                                    a.out.row(t));
              }
            });
}

void linear(ops::Device& device, const ops::LinearArgs& a) noexcept {
  if (a.x.n_rows == 0) return;
  const CpuMatrix& m = matrix_of(a.weight);
  CpuDevice& cpu = cpu_of(device);
  const LinearJob job = prepare(cpu, m, a);
  const std::size_t work = std::size_t{a.x.n_rows} * m.n_in() * m.n_out();
  // Items are (panel, chunk of rows), panels outermost, so that a thread reads few weights twice.
  // Tiles divide rows by themselves.
  const std::size_t chunk = job.x_tiles ? job.n_rows : kRowChunk,
                    n_runs = (job.n_rows + kRowAlign - 1) / kRowAlign,  // of aligned rows
      least = m.n_panels() < 4 * static_cast<std::size_t>(cpu.n_threads()) ? 4 : 1;
  const std::size_t n_chunks =
      std::min(std::max<std::size_t>(least, (job.n_rows + chunk - 1) / chunk), n_runs);
  const auto chunk_begin = [&](std::size_t c) {
    return static_cast<std::uint32_t>(
        std::min<std::size_t>(n_runs * c / n_chunks * kRowAlign, job.n_rows));
  };
  cpu.split(m.n_panels() * n_chunks, work, [&](std::size_t begin, std::size_t end, int part) {
    float* const scratch = cpu.thread_scratch(part, kLinearScratchFloats);
    for (std::size_t i = begin; i < end;) {
      const auto panel = static_cast<std::uint32_t>(i / n_chunks);
      const std::size_t c = i % n_chunks;
      const auto n_panels = static_cast<std::uint32_t>(n_chunks == 1 ? end - i : 1);
      cpu.kernels().linear(job, panel, panel + n_panels, chunk_begin(c), chunk_begin(c + 1),
                           scratch);
      i += n_panels;
    }
  });
}

}  // namespace kvasir::backend::cpu
