// Stored weights → the layouts of device/weights.h: rows in bf16 or f32, or tiles of codes as
// threads multiply them. Scales and biases keep 16 bits where all of the matrix are exact in f16 or
// bf16.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/detail/cuda_matrix.h"
#include "backend/cuda/detail/products.h"
#include "base/half.h"

namespace kvasir::backend::cuda {
namespace {

constexpr std::uint32_t kLeastHalfGroup = 32;  // smaller groups have f32 scales

bool same_bits(float a, float b) noexcept {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// One row, unpacked.
struct Row {
  std::vector<std::int16_t> codes;
  std::vector<float> scales, biases;

  void unpack(const codec::WeightMatrix& weight, std::size_t r, std::size_t group) {
    codes.resize(weight.n_in);
    scales.assign(weight.n_in / group, 0.0f);
    biases.assign(weight.n_in / group, 0.0f);
    codec::unpack_row(weight.type, weight.row(r), weight.n_in, codes.data(), scales.data(),
                      biases.data());
  }
};

// Whether a scale of bf16 is finite as it is stored.
bool shift_serves(float scale, Code code) noexcept {
  return std::fabs(scale) < std::ldexp(1.0f, 128 - scale_shift(code, ScaleKind::bf16));
}

// fma in bf16 rounds once, the definition twice. The two agree for 4-bit codes, scales and biases
// of bf16 where a bias is 0 or at least 2⁻¹⁰ of its scale: then fma(code, scale, bias) is exact in
// f32, or the product is too small to bring the bias near the middle between two bf16 values.
bool bf16_fma_serves(float scale, float bias) noexcept {
  constexpr float kTiny = 0x1p-100f;  // away from denormals
  const float s = std::fabs(scale), b = std::fabs(bias);
  return (s == 0.0f || s > kTiny) && (b == 0.0f || (b > kTiny && b >= s * 0x1p-10f)) &&
         std::isfinite(b);
}

// The narrowest kind that kernels have and that holds all scales and biases exactly.
ScaleKind find_scale_kind(const codec::WeightMatrix& weight, const Weight& w, ThreadPool& pool) {
  if (w.group < kLeastHalfGroup) return ScaleKind::f32;
  std::atomic<bool> f16{true}, bf16{w.has_bias != 0};
  std::atomic<std::size_t> next{0};
  pool.run([&](int) {
    Row row;
    for (std::size_t r = next++; r < weight.n_out && (f16 || bf16); r = next++) {
      row.unpack(weight, r, w.group);
      for (std::size_t g = 0; g < row.scales.size(); ++g) {
        const float s = row.scales[g], b = row.biases[g];
        const auto both = [&](auto round) {
          return same_bits(round(s), s) && same_bits(round(b), b);
        };
        if (!both([](float x) { return to_f32(to_f16(x)); }) || !std::isfinite(s)) f16 = false;
        if (!both([](float x) { return round_to_bf16(x); }) || !shift_serves(s, w.code))
          bf16 = false;
        if (w.code == Code::nibble && !bf16_fma_serves(s, b)) bf16 = false;
      }
    }
  });
  // bf16 first: 4-bit codes are decoded fastest with it.
  return bf16 ? ScaleKind::bf16 : f16 ? ScaleKind::f16 : ScaleKind::f32;
}

// Before the scales are known: f32.
Result<Weight> plan(const codec::WeightMatrix& weight, ops::PackOptions options) {
  const codec::WeightTypeInfo& info = codec::info(weight.type);
  Weight w{};
  w.n_out = weight.n_out;
  w.n_in = weight.n_in;
  w.k = (weight.n_in + kPadK - 1) / kPadK * kPadK;
  w.code = options.exact_f32 ? Code::f32 : Code::bf16;
  w.group = kChunkK;
  w.chunk_bytes = codes_bytes(w.code);
  if (!info.quantized || options.exact_f32) return w;
  if (info.bits > 8 || info.group % 16 != 0 || kChunkK % info.group != 0)
    return unsupported("backend/cuda has no layout for " + std::string(info.name));
  w.code = info.bits <= 4 ? Code::nibble : Code::byte;
  w.scale = ScaleKind::f32;
  w.has_bias = info.has_bias;
  w.group = static_cast<std::uint32_t>(info.group);
  w.offset = !info.is_signed ? 0 : w.code == Code::nibble ? 8 : 128;
  return w;
}

void set_scale(Weight& w, ScaleKind kind) {
  w.scale = kind;
  w.chunk_bytes = codes_bytes(w.code) +
                  kChunkK / w.group * kTileRows * scale_bytes(w.scale) * (w.has_bias ? 2 : 1);
}

bool is_quantized(const Weight& w) { return w.code == Code::nibble || w.code == Code::byte; }

// What upload() moves at a time: a row, or a tile.
std::size_t unit_bytes(const Weight& w) {
  if (is_quantized(w)) return std::size_t{chunks_of(w.k)} * w.chunk_bytes;
  return std::size_t{w.k} * (w.code == Code::f32 ? 4 : 2);
}
std::size_t n_units(const Weight& w) {
  return is_quantized(w) ? (w.n_out + kTileRows - 1) / kTileRows : w.n_out;
}

void put_row(const codec::WeightMatrix& weight, const Weight& w, std::size_t r, std::byte* to) {
  const std::string_view name = codec::info(weight.type).name;
  const std::size_t n = weight.n_in, size = w.code == Code::f32 ? 4 : 2;
  std::memset(to + n * size, 0, (w.k - n) * size);
  if (name == (w.code == Code::f32 ? "f32" : "bf16")) {
    std::memcpy(to, weight.row(r).codes, n * size);
    return;
  }
  thread_local std::vector<float> values;
  values.resize(n);
  weight.decode(r, values.data());
  if (w.code == Code::f32) {
    std::memcpy(to, values.data(), n * size);
  } else {
    auto* const out = reinterpret_cast<std::uint16_t*>(to);
    for (std::size_t i = 0; i < n; ++i) out[i] = to_bf16(values[i]).bits;
  }
}

void put_scale(const Weight& w, float value, std::size_t at, std::byte* to) {
  const std::uint16_t half = w.scale == ScaleKind::f16 ? to_f16(value).bits : to_bf16(value).bits;
  w.scale == ScaleKind::f32 ? std::memcpy(to + 4 * at, &value, 4)
                            : std::memcpy(to + 2 * at, &half, 2);
}

// Codes of row `in_tile` of a tile, where device/weights.h has them; the tile was zeroed.
void put_codes(const Weight& w, const std::int16_t* codes, std::size_t in_tile, std::byte* tile) {
  for (std::size_t k = 0; k < w.n_in; ++k) {
    const std::size_t step = k % kChunkK / 16, in_step = k % 16;
    const std::size_t lane = in_tile % 8 * 4 + in_step % 8 / 2;
    const std::size_t r = in_tile / 8 + in_step / 8 * 2, h = in_step % 2;
    const auto code = static_cast<std::uint32_t>(codes[k] + static_cast<int>(w.offset));
    std::byte* const chunk = tile + k / kChunkK * w.chunk_bytes;
    if (w.code == Code::byte) {
      chunk[((step / 2 * 32 + lane) * 2 + step % 2) * 8 + 2 * r + h] = static_cast<std::byte>(code);
    } else {
      const std::size_t bit = 4 * r + 16 * h;
      chunk[((step / 4 * 32 + lane) * 4 + step % 4) * 4 + bit / 8] |=
          static_cast<std::byte>((code & 15u) << bit % 8);
    }
  }
}

void put_tile(const codec::WeightMatrix& weight, const Weight& w, std::size_t t, std::byte* to) {
  thread_local Row row;
  std::memset(to, 0, unit_bytes(w));
  const std::size_t end = std::min<std::size_t>(kTileRows, w.n_out - t * kTileRows);
  for (std::size_t in_tile = 0; in_tile < end; ++in_tile) {
    row.unpack(weight, t * kTileRows + in_tile, w.group);
    put_codes(w, row.codes.data(), in_tile, to);
    for (std::size_t g = 0; g < row.scales.size(); ++g) {
      const std::size_t n_in_chunk = kChunkK / w.group;
      std::byte* const scales = to + g / n_in_chunk * w.chunk_bytes + codes_bytes(w.code);
      const std::size_t at = (g % n_in_chunk * kTileRows + in_tile) * (w.has_bias ? 2 : 1);
      put_scale(w, std::ldexp(row.scales[g], scale_shift(w.code, w.scale)), at, scales);
      if (w.has_bias) put_scale(w, row.biases[g], at + 1, scales);
    }
  }
}

// What find_scale_kind finds in all but freak weights, from the type alone; both halves are of a
// size.
ScaleKind expect_scale_kind(const codec::WeightMatrix& weight, const codec::WeightTypeInfo& info) {
  if (info.group < kLeastHalfGroup) return ScaleKind::f32;
  switch (info.scale_plane) {
    case codec::ScalePlane::none: {
      // A block's only scale is stored as it is; those of smaller groups are products with it.
      const bool is_ternary = info.name.starts_with("tq");
      return info.group == info.block || is_ternary ? ScaleKind::f16 : ScaleKind::f32;
    }
    case codec::ScalePlane::floats:
      return weight.planes.scale_type == codec::ScaleType::f32 ? ScaleKind::f32 : ScaleKind::f16;
    case codec::ScalePlane::e8m0:
      return ScaleKind::f16;
    case codec::ScalePlane::e4m3:
    case codec::ScalePlane::columns:
      break;
  }
  return ScaleKind::f32;
}

}  // namespace

Result<std::unique_ptr<ops::PackedMatrix>> CudaDevice::pack(const codec::WeightMatrix& weight,
                                                            ops::PackOptions options) {
  auto m = std::make_unique<CudaMatrix>(weight.n_out, weight.n_in);
  Weight& w = m->weight;
  KVASIR_TRY(w, plan(weight, options));
  if (is_quantized(w)) set_scale(w, find_scale_kind(weight, w, products().pool()));
  KVASIR_TRY(m->data, allocate(unit_bytes(w) * n_units(w), ops::MemoryKind::device));
  w.data = m->data.data();
  const Status uploaded = products().upload(
      m->data.data(), unit_bytes(w), n_units(w), [&](std::size_t i, std::byte* at) {
        is_quantized(w) ? put_tile(weight, w, i, at) : put_row(weight, w, i, at);
      });
  if (!uploaded) return uploaded.error();
  return std::unique_ptr<ops::PackedMatrix>(std::move(m));
}

Result<std::size_t> packed_size_bytes(const codec::WeightMatrix& weight, ops::PackOptions options) {
  KVASIR_TRY(Weight w, plan(weight, options));
  if (is_quantized(w)) set_scale(w, expect_scale_kind(weight, codec::info(weight.type)));
  return unit_bytes(w) * n_units(w);
}

}  // namespace kvasir::backend::cuda
