// Activations of f32 → codes of 8 bits with one scale a group (docs/numerics.md).

namespace kvasir::backend::cpu {
namespace {

constexpr float kRoundShift =
    12582912.0f;  // 1.5 · 2^23: what is added to it is rounded to integers
constexpr float kLeastOfGroup = 0x1p-100f;  // below it a group counts as zeros

struct GroupScale {
  float scale, inverse;
};

inline GroupScale scale_of_group(const float* x, std::uint32_t n) {
  F32x16 largest = zero(), poison = zero();
  for (std::uint32_t i = 0; i < n; i += 16) {
    const F32x16 a = load(x + i);
    largest = max(from_bits(and_u(bits(a), set1_u(0x7fffffffu))), largest);
    poison = fma(a, zero(), poison);
  }
  if (sum_lanes(poison) != 0.0f) return {__builtin_nanf(""), 0.0f};
  const float most = max_lanes(largest);
  if (!(most >= kLeastOfGroup)) return {0.0f, 0.0f};
  return {most / 127.0f, 127.0f / most};
}

// Where element i of eight goes.
template <bool kNibble>
constexpr std::size_t place_in_eight(std::size_t i) {
  constexpr std::size_t kPlaces[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  return kNibble ? kPlaces[i] : i;
}

// Codes of a group; their sum.
template <bool kNibble>
inline std::int32_t quantize_group(const float* x,
                                   std::uint32_t n,
                                   float inverse,
                                   std::uint8_t* to) {
  if (inverse == 0.0f) {
    __builtin_memset(to, 0, n);
    return 0;
  }
  F32x16 sum = zero();
  for (std::uint32_t i = 0; i < n; i += 16) {
    const F32x16 shifted = add(mul(load(x + i), set1(inverse)), set1(kRoundShift));
    sum = add(sum, sub(shifted, set1(kRoundShift)));  // integers: exact
    alignas(64) std::uint32_t codes[16];              // in the lowest byte
    __builtin_memcpy(codes, &shifted, sizeof(codes));
#pragma GCC unroll 16
    for (std::size_t j = 0; j < 16; ++j)
      to[i + j / 8 * 8 + place_in_eight<kNibble>(j % 8)] = static_cast<std::uint8_t>(codes[j]);
  }
  return static_cast<std::int32_t>(sum_lanes(sum));
}

template <bool kNibble>
inline void quantize_row(
    const PackedLayout& w, const float* x, std::uint32_t width, std::uint8_t* to, float* factors) {
  const std::int32_t offset =
      !w.is_signed ? 0 : static_cast<std::int32_t>(kNibble ? kNibbleOffset : kByteOffset);
  for (std::uint32_t g = 0; g < w.n_groups; ++g, x += w.group, to += w.group) {
    const GroupScale scale = scale_of_group(x, w.group);
    const std::int32_t sum = quantize_group<kNibble>(x, w.group, scale.inverse, to),
                       start = -offset * sum;
    factors[0] = scale.scale;
    __builtin_memcpy(factors + width, &start, sizeof(start));
    factors[2 * width] = scale.scale * static_cast<float>(sum);
    factors += kFactors * width;
  }
}

inline void quantize_rows(const PackedLayout& w,
                          const float* x,
                          std::size_t x_stride,
                          std::uint32_t n_rows,
                          std::uint32_t width,
                          std::uint8_t* to,
                          float* factors) {
  const std::size_t row_bytes = int8_row_bytes(w), n_codes = std::size_t{w.group} * w.n_groups;
  for (std::uint32_t row = 0; row < n_rows; ++row, to += row_bytes) {
    const float* const from = x + row * x_stride;
    w.code == CodeKind::nibble ? quantize_row<true>(w, from, width, to, factors + row)
                               : quantize_row<false>(w, from, width, to, factors + row);
    __builtin_memset(to + n_codes, 0, row_bytes - n_codes);
  }
}

// Rows of dwords → [dword][width].
inline void interleave_dwords(const std::uint8_t* rows,
                              std::size_t row_bytes,
                              std::uint32_t n_rows,
                              std::uint32_t width,
                              std::uint32_t* to) {
  const auto n = static_cast<std::uint32_t>(row_bytes / 4);
  if (width < kRowAlign) {
    for (std::uint32_t d = 0; d < n; ++d, to += width) {
      for (std::uint32_t r = 0; r < n_rows; ++r)
        __builtin_memcpy(to + r, rows + r * row_bytes + 4 * d, 4);
    }
    return;
  }
  for (std::uint32_t d = 0; d < n; d += 16, to += 16 * kRowAlign) {
    U32x16 in[16], columns[16];
    for (std::uint32_t r = 0; r < 16; ++r)
      in[r] = r < n_rows ? load_u(rows + r * row_bytes + 4 * d) : set1_u(0);
    transpose(in, columns);
    for (std::uint32_t i = 0; i < 16; ++i)
      store(reinterpret_cast<float*>(to + i * kRowAlign), from_bits(columns[i]));
  }
}

void quantize(const PackedLayout& w,
              const float* x,
              std::size_t x_stride,
              std::uint32_t n_rows,
              std::uint32_t width,
              std::uint8_t* scratch,
              std::uint32_t* v,
              float* factors) {
  if (width == 1)
    return quantize_rows(w, x, x_stride, 1, 1, reinterpret_cast<std::uint8_t*>(v), factors);
  quantize_rows(w, x, x_stride, n_rows, width, scratch, factors);
  interleave_dwords(scratch, int8_row_bytes(w), n_rows, width, v);
}

}  // namespace
}  // namespace kvasir::backend::cpu
