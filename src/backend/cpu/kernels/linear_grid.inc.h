// Activations on their grid as integers (docs/numerics.md), for the bits that float lanes and tiles
// give: VNNI multiplies codes of 4 bits by their two digits of 8 bits, codes of 8 bits, widened, by
// the whole.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kDigits = 2;

// ---- x ----

// 16 integers of at most 14 bits and a sign as two digits, 256 · the first + the second: of each
// eight, elements 0, 4, 1, 5 and 2, 6, 3, 7, the first digits of either four before the second
// ones.
inline __m256i digits_of(U32x16 v) {
  const U32x16 first = and_u(add_u(v, set1_u(128)), set1_u(0xff00)),
               second = and_u(v, set1_u(0xff));
  const __m256i words = _mm512_cvtepi32_epi16(or_u(first, second));
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(1, 9, 3, 11, 0, 8, 2, 10, 5, 13, 7, 15, 4, 12, 6, 14));
  return _mm256_shuffle_epi8(words, order);
}

// factors: of the row among `width`.
template <CodeKind kKind>
inline void quantize_to_grid(
    const PackedLayout& w, const float* x, std::uint32_t width, std::uint8_t* to, float* factors) {
  const bool is_offset = kKind == CodeKind::nibble && w.is_signed;
  const std::int32_t offset = is_offset ? static_cast<std::int32_t>(kNibbleOffset) : 0;
  F32x16 values[kBlockK / 16];
  const std::uint32_t n = w.group / 16;
  for (std::uint32_t g = 0; g < w.n_groups; ++g, x += w.group, factors += kFactors * width) {
    for (std::uint32_t i = 0; i < n; ++i) values[i] = round_bf16(load(x + 16 * i));
    const std::uint32_t exponent = largest_exponent(values, n);
    const bool is_lost = exponent < kLeastExponent || exponent >= kPastExponent;
    const U32x16 shift = set1_u(grid_shift_bits(exponent, w.grid));
    U32x16 sums = set1_u(0);
    for (std::uint32_t i = 0; i < n; ++i, to += 32) {
      const U32x16 v = is_lost ? set1_u(0) : sub_u(bits(add(values[i], from_bits(shift))), shift);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          kKind == CodeKind::nibble ? digits_of(v) : _mm512_cvtepi32_epi16(v));
      sums = add_u(sums, v);
    }
    const std::int32_t sum = _mm512_reduce_add_epi32(sums), start = -offset * sum;
    factors[0] = exponent < kLeastExponent   ? 0.0f
                 : exponent >= kPastExponent ? __builtin_nanf("")
                                             : unit_of(exponent, w.grid);
    __builtin_memcpy(factors + width, &start, sizeof(start));
    factors[2 * width] = factors[0] * static_cast<float>(sum);
  }
}

// Rows side by side: Unit is what a row has of one place of K.
template <CodeKind kKind, class Unit>
inline void quantize_rows_to_grid(const PackedLayout& w,
                                  const float* x,
                                  std::size_t x_stride,
                                  std::uint32_t n_rows,
                                  std::uint32_t width,
                                  std::uint8_t* scratch,
                                  std::uint32_t* v,
                                  float* factors) {
  const std::size_t row_bytes = kDigits * int8_row_bytes(w),
                    whole = std::size_t{kDigits} * w.group * w.n_groups;
  for (std::uint32_t row = 0; row < width; ++row) {
    auto* const bytes = width == 1 ? reinterpret_cast<std::uint8_t*>(v) : scratch;
    if (row < n_rows) quantize_to_grid<kKind>(w, x + row * x_stride, width, bytes, factors + row);
    const std::size_t n = row < n_rows ? whole : 0;
    __builtin_memset(bytes + n, 0, row_bytes - n);
    if (width == 1) return;
    const auto* const from = reinterpret_cast<const Unit*>(bytes);
    auto* const to = reinterpret_cast<Unit*>(v) + row;
    for (std::size_t i = 0; i < row_bytes / sizeof(Unit); ++i) to[i * width] = from[i];
  }
}

void quantize_grid(const PackedLayout& w,
                   const float* x,
                   std::size_t x_stride,
                   std::uint32_t n_rows,
                   std::uint32_t width,
                   std::uint8_t* scratch,
                   std::uint32_t* v,
                   float* factors) {
  w.code == CodeKind::nibble ? quantize_rows_to_grid<CodeKind::nibble, std::uint64_t>(
                                   w, x, x_stride, n_rows, width, scratch, v, factors)
                             : quantize_rows_to_grid<CodeKind::byte, std::uint32_t>(
                                   w, x, x_stride, n_rows, width, scratch, v, factors);
}

// ---- codes of 8 bits ----

constexpr int kWordRows = 6;  // whose sums registers hold

// Dots of a group's codes, [2 k][output][...] after the unpacking: first of outputs 0 … 3, 8 … 11,
// 16 … 19, 24 … 27 of the panel, then of the others.
template <int R>
inline __attribute__((always_inline)) void dot_words(const std::uint8_t* codes,
                                                     std::uint32_t group,
                                                     std::uint32_t width,
                                                     const std::uint32_t* v,
                                                     U32x16 (&dots)[R][2]) {
#pragma GCC unroll 4
  for (std::uint32_t k = 0; k < group; k += 2, codes += 2 * kPanel, v += width) {
    ask_ahead(codes);
    const auto* const at = reinterpret_cast<const __m256i*>(codes);
    const __m512i even = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at)),
                  odd = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at + 1)),
                  low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const U32x16 x = set1_u(v[r]);
      dots[r][0] = _mm512_dpwssd_epi32(dots[r][0], low, x);
      dots[r][1] = _mm512_dpwssd_epi32(dots[r][1], high, x);
    }
  }
}

// Outputs [16 half, 16 half + 16) of both.
template <int kHalf>
inline U32x16 in_order(U32x16 first, U32x16 second) {
  const __m512i order =
      _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                       _mm512_set1_epi32(8 * kHalf));
  return _mm512_permutex2var_epi32(first, order, second);
}

// R rows from `row` on, none across a row block.
template <int R>
inline void word_rows(const Int8Job& job,
                      std::uint32_t panel,
                      std::uint32_t width,
                      std::uint32_t row,
                      std::uint32_t n) {
  if constexpr (R > 1) {
    if (n < R) return word_rows<R - 1>(job, panel, width, row, n);
  }
  const PackedLayout& w = job.layout;
  const std::size_t block = row / width, in_block = row % width;
  const std::uint32_t* v = job.v + block * width * (int8_row_bytes(w) / 2) + in_block;
  const float* factors = job.factors + block * w.n_groups * kFactors * width + in_block;
  const std::uint8_t* group = job.weight + panel * w.panel_bytes;
  const std::size_t codes_at = (w.has_bias ? 2 : 1) * w.scales_bytes;
  F32x16 sums[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = zero();
  for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes) {
    for (std::size_t line = 0; line < codes_at; line += 64) ask_ahead(group + line);
    U32x16 dots[R][2];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) dots[r][0] = dots[r][1] = set1_u(0);
    dot_words(group + codes_at, w.group, width, v, dots);
    v += w.group / 2 * width;
    const F32x16 scales[2] = {load_scales(w.scale, group, 0), load_scales(w.scale, group, 1)};
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const F32x16 unit = set1(factors[r]);
      sums[r][0] =
          fma(scales[0], mul(to_f32(in_order<0>(dots[r][0], dots[r][1])), unit), sums[r][0]);
      sums[r][1] =
          fma(scales[1], mul(to_f32(in_order<1>(dots[r][0], dots[r][1])), unit), sums[r][1]);
    }
    if (w.has_bias) {
      const F32x16 biases[2] = {load_biases(w, group, 0), load_biases(w, group, 1)};
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const F32x16 sum = set1(factors[2 * width + static_cast<std::uint32_t>(r)]);
        sums[r][0] = fma(biases[0], sum, sums[r][0]);
        sums[r][1] = fma(biases[1], sum, sums[r][1]);
      }
    }
    factors += kFactors * width;
  }
  for (int r = 0; r < R; ++r)
    store_outputs(job, panel, row + static_cast<std::uint32_t>(r), sums[r][0], sums[r][1]);
}

inline void word_panels(const Int8Job& job,
                        std::uint32_t panel_begin,
                        std::uint32_t panel_end,
                        std::uint32_t row_begin,
                        std::uint32_t row_end) {
  const std::uint32_t width = job.n_rows <= kInt8DirectRows ? job.n_rows : kRowAlign;
  for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    for_int8_runs<kWordRows>(row_begin, row_end, [&](std::uint32_t row, std::uint32_t n) {
      word_rows<kWordRows>(job, panel, width, row, n);
    });
  }
}

void linear_grid(const Int8Job& job,
                 std::uint32_t panel_begin,
                 std::uint32_t panel_end,
                 std::uint32_t row_begin,
                 std::uint32_t row_end,
                 float*) {
  job.layout.code == CodeKind::nibble
      ? int8_panels<true, kDigits>(job, panel_begin, panel_end, row_begin, row_end)
      : word_panels(job, panel_begin, panel_end, row_begin, row_end);
}

constexpr Int8Kernels kGridTable{.name = "grid",
                                 .direct_rows = kInt8DirectRows,
                                 .quantize = &quantize_grid,
                                 .linear = &linear_grid,
                                 .digits = kDigits};

}  // namespace
}  // namespace kvasir::backend::cpu
