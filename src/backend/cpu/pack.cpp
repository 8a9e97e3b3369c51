// Stored weights → panels (kernels/kernel_table.h). Codes of at most 4 bits take 4, others 8;
// scales and biases keep 16 bits where every one of them is exact in f16 or bf16.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "backend/cpu/detail/cpu_ops.h"
#include "base/half.h"

namespace kvasir::backend::cpu {
namespace {

bool same_bits(float a, float b) noexcept {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// The rows of one panel, unpacked; rows past the end are zeros.
struct PanelRows {
  std::vector<std::int16_t> codes;    // [kPanel, n_in]
  std::vector<float> scales, biases;  // [kPanel, n_groups]
  std::vector<float> values;          // dense: [kPanel, padded n_in]
};

std::size_t bytes_of(ScaleKind kind) noexcept {
  return kind == ScaleKind::none ? 0 : kind == ScaleKind::f32 ? 4 : 2;
}

// The narrowest kind that holds all scales and biases exactly.
ScaleKind find_scale_kind(const codec::WeightMatrix& weight, std::size_t group, CpuDevice& device) {
  std::atomic<bool> f16{true}, bf16{true};
  device.split(weight.n_out, std::size_t{weight.n_out} * weight.n_in,
               [&](std::size_t begin, std::size_t end, int) {
                 const std::size_t n_groups = weight.n_in / group;
                 std::vector<std::int16_t> codes(weight.n_in);
                 std::vector<float> both(2 * n_groups);
                 for (std::size_t r = begin; r < end && (f16 || bf16); ++r) {
                   codec::unpack_row(weight.type, weight.row(r), weight.n_in, codes.data(),
                                     both.data(), both.data() + n_groups);
                   const auto all = [&](auto round) {
                     return std::all_of(both.begin(), both.end(),
                                        [&](float s) { return same_bits(round(s), s); });
                   };
                   if (f16 && !all([](float s) { return to_f32(to_f16(s)); })) f16 = false;
                   if (bf16 && !all([](float s) { return round_to_bf16(s); })) bf16 = false;
                 }
               });
  return f16 ? ScaleKind::f16 : bf16 ? ScaleKind::bf16 : ScaleKind::f32;
}

// What find_scale_kind finds in all but freak weights, from the type alone: f32 where scales are
// products.
ScaleKind expect_scale_kind(const codec::WeightMatrix& weight, const codec::WeightTypeInfo& info) {
  switch (info.scale_plane) {
    case codec::ScalePlane::none: {
      // A block's only scale is stored as it is; those of smaller groups are products with it.
      const bool is_ternary = info.name.starts_with("tq");
      return info.group == info.block || is_ternary ? ScaleKind::f16 : ScaleKind::f32;
    }
    case codec::ScalePlane::floats:
      return weight.planes.scale_type == codec::ScaleType::f32 ? ScaleKind::f32 : ScaleKind::f16;
    case codec::ScalePlane::e8m0:
      return ScaleKind::bf16;
    case codec::ScalePlane::e4m3: {  // 4 significant bits, times a factor
      int exponent = 0;
      return std::frexp(weight.planes.factor, &exponent) == 0.5f ? ScaleKind::bf16 : ScaleKind::f32;
    }
    case codec::ScalePlane::columns:
      return ScaleKind::f32;  // the bias is a product
  }
  return ScaleKind::f32;
}

// Bits of the grid: as many (13 at most) as leave a step's product with the largest codes, and all
// but the last step's sum of a group, exact in f32. Values of bf16 on it are below 255 · 2^(bits -
// 7) units.
std::uint8_t grid_bits(std::uint32_t largest_code, std::uint32_t group) noexcept {
  const std::uint32_t n = group <= kStep ? group : std::max(kStep, group - kStep);
  std::uint32_t bits = 13;
  while (255u * largest_code * n >= 1u << (24 + 7 - bits)) --bits;
  return static_cast<std::uint8_t>(bits);
}

// What goes to the grid: bytes without a sign are shifted to have one, which takes a bit less;
// below kFewestGridBits activations would lose what bf16 keeps.
void plan_grid(const codec::WeightTypeInfo& info, PackedLayout& l) noexcept {
  constexpr std::uint8_t kFewestGridBits = 11;
  const bool is_shifted = info.bits == 8 && !info.is_signed && info.has_bias;
  const std::uint32_t largest =
      info.is_signed || is_shifted ? 1u << (info.bits - 1) : (1u << info.bits) - 1;
  const std::uint8_t bits = grid_bits(largest, l.group);
  if (bits < kFewestGridBits) return;
  l.grid = bits;
  if (!is_shifted) return;
  l.code_shift = 128;
  l.is_signed = true;
}

Result<PackedLayout> plan_quantized(const codec::WeightMatrix& weight,
                                    const codec::WeightTypeInfo& info,
                                    ScaleKind scale) {
  if (info.bits > 8 || info.group % 8 != 0 || kBlockK % info.group != 0) {
    return unsupported("backend/cpu has no layout for " + std::string(info.name));
  }
  PackedLayout l;
  l.code = info.bits <= 4 ? CodeKind::nibble : CodeKind::byte;
  l.scale = scale;
  l.has_bias = info.has_bias;
  l.is_signed = info.is_signed;
  l.group = static_cast<std::uint32_t>(info.group);
  l.n_groups = weight.n_in / l.group;
  l.scales_bytes = kPanel * bytes_of(l.scale);
  const std::size_t codes_bytes =
      std::size_t{kPanel} * l.group / (l.code == CodeKind::nibble ? 2 : 1);
  l.group_bytes = codes_bytes + l.scales_bytes * (l.has_bias ? 2 : 1);
  return l;
}

PackedLayout plan_dense(const codec::WeightMatrix& weight,
                        const codec::WeightTypeInfo& info,
                        ops::PackOptions options) {
  const CodeKind code = options.exact_f32 && info.name != "bf16" ? CodeKind::f32 : CodeKind::bf16;
  PackedLayout l;
  l.code = code;
  l.group = kStep;
  l.n_groups = (weight.n_in + kStep - 1) / kStep;
  l.group_bytes = std::size_t{kPanel} * kStep * (code == CodeKind::f32 ? 4 : 2);
  return l;
}

void put_scales(ScaleKind kind,
                const std::vector<float>& from,
                std::size_t n_groups,
                std::size_t g,
                std::byte* to) {
  for (std::size_t o = 0; o < kPanel; ++o) {
    const float s = from[o * n_groups + g];
    const std::uint16_t half = kind == ScaleKind::f16 ? to_f16(s).bits : to_bf16(s).bits;
    kind == ScaleKind::f32 ? std::memcpy(to + 4 * o, &s, 4) : std::memcpy(to + 2 * o, &half, 2);
  }
}

// Bytes of K four together for each output, unsigned: signed ones + 128.
void put_quads(const PackedLayout& l,
               const std::vector<std::int16_t>& codes,
               std::size_t n_in,
               std::size_t k0,
               std::byte* to) {
  const int offset = l.is_signed ? static_cast<int>(kByteOffset) : 0;
  for (std::size_t k = 0; k < l.group; ++k) {
    for (std::size_t o = 0; o < kPanel; ++o)
      to[(k / 4 * kPanel + o) * 4 + k % 4] =
          static_cast<std::byte>(codes[o * n_in + k0 + k] + offset);
  }
}

void put_codes(const PackedLayout& l,
               const std::vector<std::int16_t>& codes,
               std::size_t n_in,
               std::size_t k0,
               std::byte* to) {
  if (l.code == CodeKind::byte) {
    for (std::size_t k = 0; k < l.group; ++k) {
      for (std::size_t o = 0; o < kPanel; ++o)
        to[k * kPanel + o] = static_cast<std::byte>(codes[o * n_in + k0 + k] - l.code_shift);
    }
    return;
  }
  const int offset = l.is_signed ? 8 : 0;
  for (std::size_t k = 0; k < l.group; k += 8) {
    for (std::size_t o = 0; o < kPanel; ++o) {
      std::uint32_t word = 0;
      for (std::size_t j = 0; j < 8; ++j) {
        word |= (static_cast<std::uint32_t>(codes[o * n_in + k0 + k + j] + offset) & 15u)
                << (4 * (j / 2 + j % 2 * 4));
      }
      std::memcpy(to + (k / 8 * kPanel + o) * 4, &word, 4);
    }
  }
}

void pack_quantized_panel(const codec::WeightMatrix& weight,
                          const PackedLayout& l,
                          bool has_quads,
                          std::size_t panel,
                          PanelRows& rows,
                          std::byte* to) {
  const std::size_t n_in = weight.n_in, n_groups = l.n_groups;
  rows.codes.assign(kPanel * n_in, 0);
  rows.scales.assign(kPanel * n_groups, 0.0f);
  rows.biases.assign(kPanel * n_groups, 0.0f);
  for (std::size_t o = 0; o < kPanel && panel * kPanel + o < weight.n_out; ++o) {
    codec::unpack_row(weight.type, weight.row(panel * kPanel + o), n_in,
                      rows.codes.data() + o * n_in, rows.scales.data() + o * n_groups,
                      rows.biases.data() + o * n_groups);
  }
  for (std::size_t g = 0; g < n_groups; ++g, to += l.group_bytes) {
    put_scales(l.scale, rows.scales, n_groups, g, to);
    if (l.has_bias) put_scales(l.scale, rows.biases, n_groups, g, to + l.scales_bytes);
    std::byte* const codes = to + l.scales_bytes * (l.has_bias ? 2 : 1);
    has_quads ? put_quads(l, rows.codes, n_in, g * l.group, codes)
              : put_codes(l, rows.codes, n_in, g * l.group, codes);
  }
}

void pack_dense_panel(const codec::WeightMatrix& weight,
                      const PackedLayout& l,
                      std::size_t panel,
                      PanelRows& rows,
                      std::byte* to) {
  const std::size_t n = std::size_t{l.group} * l.n_groups;
  rows.values.assign(kPanel * n, 0.0f);
  for (std::size_t o = 0; o < kPanel && panel * kPanel + o < weight.n_out; ++o) {
    weight.decode(panel * kPanel + o, rows.values.data() + o * n);
  }
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t o = 0; o < kPanel; ++o) {
      const float w = rows.values[o * n + k];
      const std::uint16_t half = to_bf16(w).bits;
      l.code == CodeKind::f32 ? std::memcpy(to + (k * kPanel + o) * 4, &w, 4)
                              : std::memcpy(to + ((k / 2 * kPanel + o) * 2 + k % 2) * 2, &half, 2);
    }
  }
}

}  // namespace

Result<std::unique_ptr<CpuMatrix>> pack_matrix(const codec::WeightMatrix& weight,
                                               ops::PackOptions options,
                                               CpuDevice& device) {
  const codec::WeightTypeInfo& info = codec::info(weight.type);
  auto m = std::make_unique<CpuMatrix>(weight.n_out, weight.n_in);
  m->round_x = !options.exact_f32;
  PackedLayout& l = m->layout;
  if (info.quantized) {
    KVASIR_TRY(l, plan_quantized(weight, info, find_scale_kind(weight, info.group, device)));
    m->takes_int8 = device.int8_kernels() != nullptr && !options.exact_f32;
    if (!m->takes_int8 && !options.exact_f32) plan_grid(info, l);
  } else {
    l = plan_dense(weight, info, options);
  }
  l.panel_bytes = l.group_bytes * l.n_groups;
  KVASIR_TRY(m->data, device.weight_memory().allocate(l.panel_bytes * m->n_panels()));
  device.split(m->n_panels(), std::size_t{weight.n_out} * weight.n_in,
               [&](std::size_t begin, std::size_t end, int) {
                 PanelRows rows;
                 for (std::size_t panel = begin; panel < end; ++panel) {
                   std::byte* const to = m->data.data() + panel * l.panel_bytes;
                   info.quantized ? pack_quantized_panel(weight, l, m->has_quads(), panel, rows, to)
                                  : pack_dense_panel(weight, l, panel, rows, to);
                 }
               });
  return m;
}

Result<std::size_t> packed_size_bytes(const codec::WeightMatrix& weight, ops::PackOptions options) {
  const codec::WeightTypeInfo& info = codec::info(weight.type);
  PackedLayout l;
  if (info.quantized) {
    KVASIR_TRY(l, plan_quantized(weight, info, expect_scale_kind(weight, info)));
  } else {
    l = plan_dense(weight, info, options);
  }
  const std::size_t n_panels = (std::size_t{weight.n_out} + kPanel - 1) / kPanel;
  return l.group_bytes * l.n_groups * n_panels;
}

}  // namespace kvasir::backend::cpu
