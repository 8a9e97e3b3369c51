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

struct LinearInput {   // as LinearJob's
  float* x = nullptr;  // or
  std::uint16_t* tiles = nullptr;
  float* group_sums = nullptr;

  float* sums_of(const CpuMatrix& m, std::size_t row) const noexcept {
    return group_sums ? group_sums + row * m.layout.n_groups : nullptr;
  }
};

// Rows [begin, end) of x into tiles.
void prepare_tiles(CpuDevice& device,
                   const CpuMatrix& m,
                   const ops::LinearArgs& a,
                   const LinearInput& to,
                   std::size_t begin,
                   std::size_t end,
                   float* scratch) {
  for (std::size_t row = begin; row < end; ++row) {
    prepare_row(device, m, a.x.row(row), scratch, to.sums_of(m, row));
    device.kernels().pack_tiles(m.layout, scratch, row, to.tiles);
  }
}

// Rows [first, first + n) of x side by side, first a multiple of kRowAlign and n at most that.
void prepare_rows(CpuDevice& device,
                  const CpuMatrix& m,
                  const ops::LinearArgs& a,
                  const LinearInput& to,
                  std::uint32_t first,
                  std::uint32_t n,
                  float* rows) {
  const std::size_t k = m.padded_in();
  const bool is_lone = a.x.n_rows == 1;  // already in the order wanted
  for (std::uint32_t row = 0; row < n; ++row)
    prepare_row(device, m, a.x.row(first + row), is_lone ? to.x : rows + row * k,
                to.sums_of(m, first + row));
  if (is_lone) return;
  const std::uint32_t width = a.x.n_rows <= device.kernels().direct_rows ? a.x.n_rows : kRowAlign;
  device.kernels().pack_rows(rows, n, m.padded_in(), width, to.x + first * k);
}

LinearJob prepare(CpuDevice& device, const CpuMatrix& m, const ops::LinearArgs& a) {
  const std::uint32_t n = a.x.n_rows, k = m.padded_in();
  const std::size_t n_blocks = (n + kRowAlign - 1) / kRowAlign, padded = n_blocks * kRowAlign;
  LinearInput to;
  if (m.layout.has_bias) to.group_sums = device.sums().floats(padded * m.layout.n_groups);
  if (takes_tiles(device, m, n)) {
    to.tiles = reinterpret_cast<std::uint16_t*>(device.inputs().floats(padded * k / 2));
    device.split(n, std::size_t{n} * k, [&](std::size_t begin, std::size_t end, int part) {
      prepare_tiles(device, m, a, to, begin, end, device.thread_scratch(part, k));
    });
  } else {
    to.x = device.inputs().floats(padded * k);
    device.split(n_blocks, std::size_t{n} * k, [&](std::size_t begin, std::size_t end, int part) {
      float* const rows = device.thread_scratch(part, std::size_t{kRowAlign} * k);
      for (std::size_t block = begin; block < end; ++block) {
        const auto first = static_cast<std::uint32_t>(block * kRowAlign);
        prepare_rows(device, m, a, to, first, std::min(n - first, kRowAlign), rows);
      }
    });
  }
  return {.weight = bytes_of(m),
          .layout = m.layout,
          .x = to.x,
          .group_sums = to.group_sums,
          .n_rows = n,
          .bias = a.bias,
          .out = a.out.data,
          .out_stride = a.out.stride,
          .n_out = m.n_out(),
          .x_tiles = to.tiles};
}

}  // namespace

void embed(ops::Device& device, const ops::EmbedArgs& a) noexcept {
  const CpuMatrix& m = matrix_of(a.table);
  CpuDevice& cpu = cpu_of(device);
  cpu.split(a.tokens.size(), a.tokens.size() * m.n_in() * kPanel,
            [&](std::size_t begin, std::size_t end, int) {
              for (std::size_t t = begin; t < end; ++t) {
                m.has_quads() ? embed_quads(m, a.tokens[t], a.scale, a.out.row(t))
                              : cpu.kernels().embed(bytes_of(m), m.layout, a.tokens[t], m.n_in(),
                                                    a.scale, a.out.row(t));
              }
            });
}

void linear(ops::Device& device, const ops::LinearArgs& a) noexcept {
  if (a.x.n_rows == 0) return;
  const CpuMatrix& m = matrix_of(a.weight);
  CpuDevice& cpu = cpu_of(device);
  if (m.takes_int8) return linear_int8(cpu, a);
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

void linear_side_by_side(ops::Device& device, const ops::LinearGroupArgs& a) noexcept {
  if (a.x.n_rows == 0 || a.parts.empty() || linear_group_int8(cpu_of(device), a)) return;
  ops::linear_group_composed(device, a);
}

}  // namespace kvasir::backend::cpu
