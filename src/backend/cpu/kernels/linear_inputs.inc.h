// Rows of x in the order in which linear.inc.h reads them, their group sums, and rows of a packed
// table.

namespace kvasir::backend::cpu {
namespace {

template <std::uint32_t W>
inline void interleave_rows(const float* rows, std::uint32_t n_rows, std::uint32_t n, float* out) {
  for (std::uint32_t k = 0; k < n; ++k, out += W) {
    for (std::uint32_t r = 0; r < W; ++r) out[r] = r < n_rows ? rows[std::size_t{r} * n + k] : 0.0f;
  }
}

template <std::uint32_t W>
inline void interleave_some(
    const float* rows, std::uint32_t n_rows, std::uint32_t n, std::uint32_t width, float* out) {
  if constexpr (W > 1) {
    if (width < W) return interleave_some<W - 1>(rows, n_rows, n, width, out);
  }
  interleave_rows<W>(rows, n_rows, n, out);
}

void pack_rows(
    const float* rows, std::uint32_t n_rows, std::uint32_t n, std::uint32_t width, float* out) {
  if (width < kRowAlign) return interleave_some<kDirectRows>(rows, n_rows, n, width, out);
  for (std::uint32_t k = 0; k < n; k += 16, out += 16 * kRowAlign) {
    U32x16 in[16], columns[16];
    for (std::uint32_t r = 0; r < 16; ++r)
      in[r] = r < n_rows ? bits(load(rows + std::size_t{r} * n + k)) : set1_u(0);
    transpose(in, columns);
    for (std::uint32_t i = 0; i < 16; ++i) store(out + i * kRowAlign, from_bits(columns[i]));
  }
}
static_assert(kRowAlign == 16 && kDirectRows < kRowAlign);

void round_to_grid(const PackedLayout& w, const float* x, std::uint32_t n_groups, float* out) {
  F32x16 values[kBlockK / 16];
  const std::uint32_t n = w.group / 16;
  for (std::uint32_t g = 0; g < n_groups; ++g, x += w.group, out += w.group) {
    for (std::uint32_t i = 0; i < n; ++i) values[i] = round_bf16(load(x + 16 * i));
    const std::uint32_t exponent = largest_exponent(values, n);
    const bool is_lost = exponent < kLeastExponent || exponent >= kPastExponent;
    const F32x16 lost = set1(exponent < kLeastExponent ? 0.0f : __builtin_nanf("")),
                 shift = from_bits(set1_u(grid_shift_bits(exponent, w.grid)));
    for (std::uint32_t i = 0; i < n; ++i)
      store(out + 16 * i, is_lost ? lost : sub(add(values[i], shift), shift));
  }
}

// The same product with all codes 1, group by group.
void group_sums(const float* x, std::uint32_t group, std::uint32_t n_groups, float* out) {
  const std::uint32_t step = group < kStep ? group : kStep;
  for (std::uint32_t g = 0; g < n_groups; ++g) {
    float sum = 0.0f;
    for (std::uint32_t k = 0; k < group; k += step, x += step) {
      float even = 0.0f, odd = 0.0f;
      for (std::uint32_t i = 0; i < step; i += 2) {
        even += x[i];
        odd += x[i + 1];
      }
      sum += even + odd;
    }
    out[g] = sum;
  }
}

// Row `row` of the matrix: codes · scale + bias, times `factor`.
void embed(const std::uint8_t* weight,
           const PackedLayout& w,
           std::uint32_t row,
           std::uint32_t n,
           float factor,
           float* out) {
  const std::uint8_t* group = weight + row / kPanel * w.panel_bytes;
  const std::uint32_t lane = row % kPanel;
  const float shift = w.code_shift;
  DecodedBlock block;
  float biases[kPanel] = {};
  with_decoder(w, [&](const auto& decode) {
    for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes) {
      decode_block(w, decode, group, 1, block);
      for (int h = 0; h < 2 && w.has_bias; ++h)
        store(biases + 16 * h, load_scales(w.scale, group + w.scales_bytes, h));
      for (std::uint32_t k = 0; k < w.group && g * w.group + k < n; ++k) {
        float value = block.codes[k * kPanel + lane];
        if (w.scale != ScaleKind::none)
          value = fma1(value + shift, block.scales[lane], biases[lane]);
        out[g * w.group + k] = value * factor;
      }
    }
  });
}

}  // namespace
}  // namespace kvasir::backend::cpu
