// Activations on their grid as integers (docs/numerics.md), for the bits that float lanes and tiles
// give: codes of 4 bits are multiplied by their two digits of 8 bits, codes of 8 bits, widened, by
// the whole.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kDigits = 2;

// ---- x ----

// 16 integers of at most 14 bits and a sign as two digits, 256 · the first + the second: of each
// eight, elements 0, 4, 1, 5 and 2, 6, 3, 7, the first digits of either four before the second
// ones.
inline __m256i digits_of(U32x16 v) {
  const __m256i words = narrow(v);
  const __m256i first = _mm256_and_si256(_mm256_add_epi16(words, _mm256_set1_epi16(128)),
                                         _mm256_set1_epi16(static_cast<short>(0xff00))),
                second = _mm256_and_si256(words, _mm256_set1_epi16(0xff)),
                order = _mm256_broadcastsi128_si256(
                    _mm_setr_epi8(1, 9, 3, 11, 0, 8, 2, 10, 5, 13, 7, 15, 4, 12, 6, 14));
  return _mm256_shuffle_epi8(_mm256_or_si256(first, second), order);
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
                          kKind == CodeKind::nibble ? digits_of(v) : narrow(v));
      sums = add_u(sums, v);
    }
    const auto sum = static_cast<std::int32_t>(sum_lanes(to_f32(sums)));  // exact in f32
    const std::int32_t start = -offset * sum;
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

// Dots of a group's codes: of Words.
template <int R>
inline __attribute__((always_inline)) void add_words(const std::uint8_t* codes,
                                                     std::uint32_t group,
                                                     std::uint32_t width,
                                                     const std::uint32_t* v,
                                                     U32x16 (&dots)[R][2]) {
#pragma GCC unroll 4
  for (std::uint32_t k = 0; k < group; k += 2, codes += 2 * kPanel, v += width) {
    ask_ahead(codes);
    const Words words = load_words(codes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const U32x16 x = set1_u(v[r]);
      dots[r][0] = dot_words(dots[r][0], words.first, x);
      dots[r][1] = dot_words(dots[r][1], words.second, x);
    }
  }
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
    add_words(group + codes_at, w.group, width, v, dots);
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

constexpr Int8Kernels grid_table(std::uint32_t most_rows, std::uint32_t most_rows_of_bytes) {
  return {.name = KVASIR_ISA_NAME " grid",
          .direct_rows = kInt8DirectRows,
          .quantize = &quantize_grid,
          .linear = &linear_grid,
          .digits = kDigits,
          .most_rows = most_rows,
          .most_rows_of_bytes = most_rows_of_bytes};
}

}  // namespace
}  // namespace kvasir::backend::cpu
