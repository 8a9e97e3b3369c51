// linear and linear_group with activations as integers, of 8 bits or of two digits: rows are
// quantized once for all weights that take them alike, then threads share the weights' panels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "backend/cpu/detail/cpu_ops.h"
#include "base/half.h"

namespace kvasir::backend::cpu {
namespace {

const std::uint8_t* bytes_of(const CpuMatrix& m) noexcept {
  return reinterpret_cast<const std::uint8_t*>(m.data.data());
}

// Both take the same codes and factors.
bool takes_alike(const PackedLayout& a, const PackedLayout& b) noexcept {
  return a.code == b.code && a.is_signed == b.is_signed && a.group == b.group &&
         a.n_groups == b.n_groups && a.grid == b.grid;
}

const Int8Kernels& kernels_for(const CpuDevice& device,
                               const CpuMatrix& m,
                               std::uint32_t n_rows) noexcept {
  if (!m.takes_int8) return *device.grid_kernels();
  const Int8Kernels& kernels = *device.int8_kernels();
  return kernels.for_many && n_rows >= kernels.fewest_many ? *kernels.for_many : kernels;
}

struct Int8Input {
  std::uint32_t* v = nullptr;
  float* factors = nullptr;
};

Int8Input quantize_input(CpuDevice& device, const CpuMatrix& m, ConstMatView x) {
  const PackedLayout& l = m.layout;
  const Int8Kernels& kernels = kernels_for(device, m, x.n_rows);
  const std::uint32_t n = x.n_rows, width = n <= kernels.direct_rows ? n : kRowAlign;
  const std::size_t row_dwords = kernels.digits * (int8_row_bytes(l) / 4),
                    n_blocks = (n + width - 1) / width, v_block = width * row_dwords,
                    factors_block = std::size_t{kFactors} * l.n_groups * width;
  const Int8Input to{reinterpret_cast<std::uint32_t*>(device.inputs().floats(n_blocks * v_block)),
                     device.sums().floats(n_blocks * factors_block)};
  device.split(n_blocks, std::size_t{n} * m.n_in(), [&](std::size_t begin, std::size_t end, int p) {
    auto* const scratch =
        reinterpret_cast<std::uint8_t*>(device.thread_scratch(p, kRowAlign * row_dwords));
    for (std::size_t block = begin; block < end; ++block) {
      const auto first = static_cast<std::uint32_t>(block * width);
      kernels.quantize(l, x.row(first), x.stride, std::min(n - first, width), width, scratch,
                       to.v + block * v_block, to.factors + block * factors_block);
    }
  });
  return to;
}

Int8Job job_of(const Int8Input& input,
               const ops::LinearPart& part,
               std::uint32_t n_rows,
               MatView out) {
  const CpuMatrix& m = matrix_of(part.weight);
  Int8Job job{};
  job.weight = bytes_of(m);
  job.layout = m.layout;
  job.n_rows = n_rows;
  job.bias = part.bias;
  job.out = out.data;
  job.out_stride = out.stride;
  job.n_out = m.n_out();
  job.v = input.v;
  job.factors = input.factors;
  return job;
}

// Items are (panel, chunk of rows), panels outermost, of one part after another.
void multiply_parts(CpuDevice& device,
                    const Int8Input& input,
                    std::span<const ops::LinearPart> parts,
                    std::uint32_t n_rows,
                    MatView out) {
  std::size_t n_panels = 0;
  for (const ops::LinearPart& part : parts) n_panels += matrix_of(part.weight).n_panels();
  const std::size_t n_runs = (n_rows + kRowAlign - 1) / kRowAlign,
                    least = n_panels < 4 * static_cast<std::size_t>(device.n_threads()) ? 4 : 1,
                    n_chunks = std::min(
                        std::max<std::size_t>(least, (n_rows + kRowChunk - 1) / kRowChunk), n_runs);
  const auto chunk_begin = [&](std::size_t c) {
    return static_cast<std::uint32_t>(
        std::min<std::size_t>(n_runs * c / n_chunks * kRowAlign, n_rows));
  };
  const std::size_t work = std::size_t{n_rows} * n_panels * kPanel * parts[0].weight->n_in();
  device.split(n_panels * n_chunks, work, [&](std::size_t begin, std::size_t end, int thread) {
    float* const scratch = device.thread_scratch(thread, kLinearScratchFloats);
    std::size_t first = 0;  // item of the part
    std::uint32_t column = 0;
    for (const ops::LinearPart& part : parts) {
      const CpuMatrix& m = matrix_of(part.weight);
      const std::size_t last = first + m.n_panels() * n_chunks;
      const Int8Job job = job_of(input, part, n_rows, out.columns(column, m.n_out()));
      for (std::size_t i = std::max(begin, first); i < std::min(end, last);) {
        const auto panel = static_cast<std::uint32_t>((i - first) / n_chunks);
        const std::size_t c = (i - first) % n_chunks;
        const auto n = static_cast<std::uint32_t>(n_chunks == 1 ? std::min(end, last) - i : 1);
        kernels_for(device, m, n_rows)
            .linear(job, panel, panel + n, chunk_begin(c), chunk_begin(c + 1), scratch);
        i += n;
      }
      first = last;
      column += m.n_out();
    }
  });
}

bool can_share_input(const CpuDevice& device, const ops::LinearGroupArgs& a) noexcept {
  const CpuMatrix& first = matrix_of(a.parts[0].weight);
  return std::all_of(a.parts.begin(), a.parts.end(), [&](const ops::LinearPart& part) {
    const CpuMatrix& m = matrix_of(part.weight);
    return takes_integers(device, m, a.x.n_rows) && m.takes_int8 == first.takes_int8 &&
           takes_alike(m.layout, first.layout);
  });
}

}  // namespace

bool takes_integers(const CpuDevice& device, const CpuMatrix& m, std::uint32_t n_rows) noexcept {
  if (m.takes_int8) return true;
  const Int8Kernels* const integers = device.grid_kernels();
  if (!integers || !m.on_grid()) return false;
  const KernelTable& kernels = device.kernels();
  if (kernels.pack_tiles) return n_rows < kernels.fewest_quantized_tile_rows;
  constexpr std::uint32_t kMostBesidePairs = 12;  // more are quicker as pairs of bf16
  if (kernels.pack_pairs) return n_rows <= kMostBesidePairs;
  return n_rows <=
         (m.layout.code == CodeKind::nibble ? integers->most_rows : integers->most_rows_of_bytes);
}

void linear_in_integers(CpuDevice& device, const ops::LinearArgs& a) noexcept {
  const ops::LinearPart part{.weight = a.weight, .bias = a.bias};
  const Int8Input input = quantize_input(device, matrix_of(a.weight), a.x);
  multiply_parts(device, input, {&part, 1}, a.x.n_rows, a.out);
}

bool linear_group_in_integers(CpuDevice& device, const ops::LinearGroupArgs& a) noexcept {
  const bool takes_part =
      std::any_of(a.parts.begin(), a.parts.end(), [&](const ops::LinearPart& part) {
        return takes_integers(device, matrix_of(part.weight), a.x.n_rows);
      });
  if (!takes_part) return false;
  if (!can_share_input(device, a)) {
    ops::linear_group_composed(device, a);
    return true;
  }
  const Int8Input input = quantize_input(device, matrix_of(a.parts[0].weight), a.x);
  multiply_parts(device, input, a.parts, a.x.n_rows, a.out);
  return true;
}

// Few rows of a table: plain loops.
void embed_quads(const CpuMatrix& m, std::uint32_t row, float factor, float* out) noexcept {
  const PackedLayout& l = m.layout;
  const std::uint8_t* group = bytes_of(m) + row / kPanel * l.panel_bytes;
  const std::size_t lane = row % kPanel;
  const auto scale_at = [&](const std::uint8_t* plane) {
    std::uint16_t half = 0;
    float s = 0.0f;
    if (l.scale == ScaleKind::f32) {
      std::memcpy(&s, plane + 4 * lane, sizeof(s));
      return s;
    }
    std::memcpy(&half, plane + 2 * lane, sizeof(half));
    return l.scale == ScaleKind::f16 ? to_f32(Float16{half}) : to_f32(BFloat16{half});
  };
  const int offset = l.is_signed ? static_cast<int>(kByteOffset) : 0;
  for (std::uint32_t g = 0; g < l.n_groups; ++g, group += l.group_bytes, out += l.group) {
    const float scale = scale_at(group), bias = l.has_bias ? scale_at(group + l.scales_bytes) : 0;
    const std::uint8_t* const codes = group + (l.has_bias ? 2 : 1) * l.scales_bytes;
    for (std::uint32_t k = 0; k < l.group; ++k) {
      const int code = codes[(k / 4 * kPanel + lane) * 4 + k % 4] - offset;
      out[k] = std::fma(static_cast<float>(code), scale, bias) * factor;
    }
  }
}

}  // namespace kvasir::backend::cpu
