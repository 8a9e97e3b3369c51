// embed and linear, alone and side by side: activations are rounded (and their group sums taken)
// once, then threads share the panels.
#include <algorithm>
#include <cstring>
#include <span>

#include "backend/cpu/detail/linear_jobs.h"

namespace kvasir::backend::cpu {
namespace {

const std::uint8_t* bytes_of(const CpuMatrix& m) noexcept {
  return reinterpret_cast<const std::uint8_t*>(m.data.data());
}

// The product's own input: rounded as the weight asks, padded with zeros to whole steps.
void prepare_row(
    const CpuDevice& device, const CpuMatrix& m, const float* x, float* out, float* sums) noexcept {
  if (m.on_grid()) {
    device.kernels().round_to_grid(m.layout, x, m.layout.n_groups, out);
  } else if (m.round_x) {
    device.kernels().round_to_bf16(x, m.n_in(), out);
  } else {
    std::memcpy(out, x, m.n_in() * sizeof(float));
  }
  std::fill(out + m.n_in(), out + m.padded_in(), 0.0f);
  if (sums) device.kernels().group_sums(out, m.layout.group, m.layout.n_groups, sums);
}

// Rows [begin, end) of x into tiles.
void prepare_tiles(CpuDevice& device,
                   const CpuMatrix& m,
                   ConstMatView x,
                   const LinearInput& to,
                   std::size_t begin,
                   std::size_t end,
                   float* scratch) {
  const bool needs_room = to.group_sums || m.on_grid() || m.n_in() != m.padded_in();
  for (std::size_t row = begin; row < end; ++row) {
    if (needs_room) prepare_row(device, m, x.row(row), scratch, to.sums_of(m, row));
    device.kernels().pack_tiles(m.layout, needs_room ? scratch : x.row(row), row, to.tiles);
  }
}

// Rows [first, first + n) of x side by side, first a multiple of kRowAlign and n at most that.
void prepare_rows(CpuDevice& device,
                  const CpuMatrix& m,
                  ConstMatView x,
                  const LinearInput& to,
                  std::uint32_t first,
                  std::uint32_t n,
                  float* rows) {
  const std::size_t k = m.padded_in();
  const bool is_lone = x.n_rows == 1 && !to.pairs;  // already in the order wanted
  for (std::uint32_t row = 0; row < n; ++row)
    prepare_row(device, m, x.row(first + row), is_lone ? to.x : rows + row * k,
                to.sums_of(m, first + row));
  if (is_lone) return;
  const std::uint32_t width = x.n_rows <= device.kernels().direct_rows ? x.n_rows : kRowAlign;
  to.pairs ? device.kernels().pack_pairs(rows, n, m.padded_in(), width, to.pairs + first * k / 2)
           : device.kernels().pack_rows(rows, n, m.padded_in(), width, to.x + first * k);
}

std::size_t n_panels_of(const LinearJob& job) noexcept { return (job.n_out + kPanel - 1) / kPanel; }

// How rows are cut: in even parts of at most rows_together.
std::uint32_t n_chunks_of(const CpuDevice& cpu, const LinearJob& any, std::size_t n_panels) {
  const std::uint32_t n_runs = (any.n_rows + kRowAlign - 1) / kRowAlign,  // of aligned rows
      chunk = rows_together(any.layout, any.x_tiles != nullptr),
                      least = n_panels < 4 * static_cast<std::size_t>(cpu.n_threads()) ? 4 : 1;
  return std::min(std::max(least, (any.n_rows + chunk - 1) / chunk), n_runs);
}

// Items are (chunk of rows, job, panel). Chunks of tiles are outermost: x stays in a thread's L2
// while weights go by; else innermost, so that few weights are read twice.
struct Items {
  std::size_t n_panels;  // of all jobs
  std::uint32_t n_chunks, n_rows;
  bool chunks_outside;

  std::size_t size() const noexcept { return n_panels * n_chunks; }
  std::uint32_t chunk_of(std::size_t i) const noexcept {
    return static_cast<std::uint32_t>(chunks_outside ? i / n_panels : i % n_chunks);
  }
  std::size_t panel_of(std::size_t i) const noexcept {
    return chunks_outside ? i % n_panels : i / n_chunks;
  }
  // Pairs of runs stay together where there are enough: tiles take two at once.
  std::uint32_t row_of_chunk(std::uint32_t c) const noexcept {
    const std::size_t n_runs = (n_rows + kRowAlign - 1) / kRowAlign,
                      unit = n_runs >= 2 * std::size_t{n_chunks} ? 2 : 1,
                      n_units = (n_runs + unit - 1) / unit;
    return static_cast<std::uint32_t>(
        std::min<std::size_t>(n_units * c / n_chunks * unit * kRowAlign, n_rows));
  }
};

}  // namespace

InputForm form_for(const CpuDevice& device, const CpuMatrix& m, std::uint32_t n_rows) noexcept {
  const KernelTable& kernels = device.kernels();
  if (!m.round_x || m.layout.code == CodeKind::f32) return InputForm::floats;
  const bool is_dense = m.layout.scale == ScaleKind::none;
  if (kernels.pack_tiles &&
      n_rows >= (is_dense ? kernels.fewest_tile_rows : kernels.fewest_quantized_tile_rows))
    return InputForm::tiles;
  return kernels.pack_pairs ? InputForm::pairs : InputForm::floats;
}

LinearInput make_room(
    CpuDevice& device, const CpuMatrix& m, std::uint32_t n_rows, Scratch& x, Scratch& sums) {
  const std::size_t k = m.padded_in(),
                    padded = (std::size_t{n_rows} + kRowAlign - 1) / kRowAlign * kRowAlign;
  LinearInput to;
  if (m.layout.has_bias) to.group_sums = sums.floats(padded * m.layout.n_groups);
  const InputForm form = form_for(device, m, n_rows);
  float* const place = x.floats(form == InputForm::tiles ? padded * k / 2 : padded * k);
  if (form == InputForm::tiles) to.tiles = reinterpret_cast<std::uint16_t*>(place);
  if (form == InputForm::pairs) to.pairs = reinterpret_cast<std::uint32_t*>(place);
  if (form == InputForm::floats) to.x = place;
  return to;
}

LinearInput prepare(CpuDevice& device, const CpuMatrix& m, ConstMatView x) {
  const std::uint32_t n = x.n_rows, k = m.padded_in();
  const std::size_t n_blocks = (n + kRowAlign - 1) / kRowAlign;
  const LinearInput to = make_room(device, m, n, device.inputs(), device.sums());
  if (to.tiles) {
    device.split(n, std::size_t{n} * k, [&](std::size_t begin, std::size_t end, int part) {
      prepare_tiles(device, m, x, to, begin, end, device.thread_scratch(part, k));
    });
  } else {
    device.split(n_blocks, std::size_t{n} * k, [&](std::size_t begin, std::size_t end, int part) {
      float* const rows = device.thread_scratch(part, std::size_t{kRowAlign} * k);
      for (std::size_t block = begin; block < end; ++block) {
        const auto first = static_cast<std::uint32_t>(block * kRowAlign);
        prepare_rows(device, m, x, to, first, std::min(n - first, kRowAlign), rows);
      }
    });
  }
  return to;
}

LinearJob job_of(const CpuMatrix& m, const LinearInput& input, const float* bias, MatView out) {
  return {.weight = bytes_of(m),
          .layout = m.layout,
          .x = input.x,
          .group_sums = input.group_sums,
          .n_rows = out.n_rows,
          .bias = bias,
          .out = out.data,
          .out_stride = out.stride,
          .n_out = m.n_out(),
          .x_tiles = input.tiles,
          .x_pairs = input.pairs};
}

std::uint32_t rows_together(const PackedLayout& w, bool are_tiles) noexcept {
  if (!are_tiles) return kRowChunk;
  const std::size_t fit = kTileRowsBytes / (std::size_t{w.group} * w.n_groups * 2);
  return std::clamp(static_cast<std::uint32_t>(fit) / kRowAlign * kRowAlign, 4 * kRowAlign,
                    kTileRowChunk);
}

void multiply(CpuDevice& cpu, std::span<const LinearJob> jobs) {
  std::size_t n_panels = 0, n_out = 0;
  for (const LinearJob& job : jobs) n_panels += n_panels_of(job), n_out += job.n_out;
  const LinearJob& any = jobs[0];
  const std::size_t work = std::size_t{any.n_rows} * any.layout.group * any.layout.n_groups * n_out;
  const std::uint32_t n_chunks = n_chunks_of(cpu, any, n_panels);
  const Items items{n_panels, n_chunks, any.n_rows, any.x_tiles != nullptr};
  cpu.split(items.size(), work, [&](std::size_t begin, std::size_t end, int part) {
    float* const scratch = cpu.thread_scratch(part, kLinearScratchFloats);
    for (std::size_t i = begin; i < end;) {
      const std::uint32_t c = items.chunk_of(i);
      std::size_t panel = items.panel_of(i), n = 1;
      auto job = jobs.begin();
      for (; panel >= n_panels_of(*job); ++job) panel -= n_panels_of(*job);
      if (items.chunks_outside || n_chunks == 1) n = std::min(end - i, n_panels_of(*job) - panel);
      cpu.kernels().linear(*job, static_cast<std::uint32_t>(panel),
                           static_cast<std::uint32_t>(panel + n), items.row_of_chunk(c),
                           items.row_of_chunk(c + 1), scratch);
      i += n;
    }
  });
}

bool take_the_same_input(const CpuDevice& cpu,
                         const CpuMatrix& a,
                         const CpuMatrix& b,
                         std::uint32_t n_rows) noexcept {
  const PackedLayout &l = a.layout, &m = b.layout;
  return a.round_x == b.round_x && a.padded_in() == b.padded_in() && l.has_bias == m.has_bias &&
         l.grid == m.grid && (!(l.has_bias || a.on_grid()) || l.group == m.group) &&
         (l.group < kStep) == (m.group < kStep) &&
         form_for(cpu, a, n_rows) == form_for(cpu, b, n_rows);
}

void embed(ops::Device& device, const ops::EmbedArgs& a) noexcept {
  const CpuMatrix& m = matrix_of(a.table);
  CpuDevice& cpu = cpu_of(device);
  cpu.split(a.tokens.size(), a.tokens.size() * m.n_in() * kPanel,
            [&](std::size_t begin, std::size_t end, int) {
              for (std::size_t t = begin; t < end; ++t) {
                const std::uint32_t token = token_of(a, t);
                m.has_quads() ? embed_quads(m, token, a.scale, a.out.row(t))
                              : cpu.kernels().embed(bytes_of(m), m.layout, token, m.n_in(), a.scale,
                                                    a.out.row(t));
              }
            });
}

void linear(ops::Device& device, const ops::LinearArgs& a) noexcept {
  if (a.x.n_rows == 0) return;
  const CpuMatrix& m = matrix_of(a.weight);
  CpuDevice& cpu = cpu_of(device);
  if (takes_integers(cpu, m, a.x.n_rows)) return linear_in_integers(cpu, a);
  const LinearJob job = job_of(m, prepare(cpu, m, a.x), a.bias, a.out);
  multiply(cpu, {&job, 1});
}

void linear_side_by_side(ops::Device& device, const ops::LinearGroupArgs& a) noexcept {
  if (a.x.n_rows == 0 || a.parts.empty()) return;
  CpuDevice& cpu = cpu_of(device);
  if (linear_group_in_integers(cpu, a)) return;
  const CpuMatrix& first = matrix_of(a.parts[0].weight);
  for (const ops::LinearPart& part : a.parts) {
    if (!take_the_same_input(cpu, first, matrix_of(part.weight), a.x.n_rows))
      return ops::linear_group_composed(device, a);
  }
  const LinearInput input = prepare(cpu, first, a.x);
  std::vector<LinearJob>& jobs = cpu.linear_jobs();
  jobs.clear();
  std::uint32_t column = 0;
  for (const ops::LinearPart& part : a.parts) {
    const CpuMatrix& m = matrix_of(part.weight);
    jobs.push_back(job_of(m, input, part.bias, a.out.columns(column, m.n_out())));
    column += m.n_out();
  }
  multiply(cpu, jobs);
}

}  // namespace kvasir::backend::cpu
