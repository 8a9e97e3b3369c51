// Matrix products in the order of docs/numerics.md: per step of 32 along K one chain of fused
// multiply-adds over the even and one over the odd elements, from zero; lanes are outputs. Up to
// kDirectRows rows are multiplied while a panel is decoded; more rows share panels decoded into L1,
// a stretch of K at a time, while the next stretch is on its way. Both give the same bits.

namespace kvasir::backend::cpu {
namespace {

struct Pair {  // the kPanel outputs of one k
  F32x16 low, high;
};

// Decodes eight elements of K in ascending order: f.template operator()<k % 2>(k, Pair) for k = 0
// … 7.
template <CodeKind kKind, bool kSigned>
struct Decoder {
  // A panel's codes for one k.
  static constexpr std::size_t kBytesOfK = kPanel *
                                           (kKind == CodeKind::f32    ? 8
                                            : kKind == CodeKind::bf16 ? 4
                                            : kKind == CodeKind::byte ? 2
                                                                      : 1) /
                                           2;

  static constexpr int kRowsAcross = kKind == CodeKind::nibble ? kWideNibbleRows : kWideRows;
  static constexpr std::size_t kBytesOfHalf = kKind == CodeKind::byte ? 16 : 64;  // of what loads

  template <class F>
  inline __attribute__((always_inline)) void operator()(const std::uint8_t* codes, F&& f) const {
#pragma GCC unroll 8
    for (std::size_t line = 0; line < 8 * kBytesOfK; line += 64)
      prefetch(codes + kPrefetchBytes + line);
    if constexpr (kKind == CodeKind::nibble) {
      const Nibbles a = load_nibbles(codes), b = load_nibbles(codes + 64);
      f.template operator()<0>(0, Pair{nibble<kSigned, 0>(a), nibble<kSigned, 0>(b)});
      f.template operator()<1>(1, Pair{nibble<kSigned, 4>(a), nibble<kSigned, 4>(b)});
      f.template operator()<0>(2, Pair{nibble<kSigned, 1>(a), nibble<kSigned, 1>(b)});
      f.template operator()<1>(3, Pair{nibble<kSigned, 5>(a), nibble<kSigned, 5>(b)});
      f.template operator()<0>(4, Pair{nibble<kSigned, 2>(a), nibble<kSigned, 2>(b)});
      f.template operator()<1>(5, Pair{nibble<kSigned, 6>(a), nibble<kSigned, 6>(b)});
      f.template operator()<0>(6, Pair{nibble<kSigned, 3>(a), nibble<kSigned, 3>(b)});
      f.template operator()<1>(7, Pair{nibble<kSigned, 7>(a), nibble<kSigned, 7>(b)});
    } else {
#pragma GCC unroll 4
      for (std::uint32_t k = 0; k < 8; k += 2) decode_two(codes + k * kBytesOfK, k, f);
    }
  }

 private:
  template <class F>
  static inline __attribute__((always_inline)) void decode_two(const std::uint8_t* p,
                                                               std::uint32_t k,
                                                               F&& f) {
    if constexpr (kKind == CodeKind::bf16) {
      const U32x16 a = load_u(p), b = load_u(p + 64), mask = set1_u(0xffff0000u);
      f.template operator()<0>(k, Pair{from_bits(shift_left<16>(a)), from_bits(shift_left<16>(b))});
      f.template operator()<1>(k + 1, Pair{from_bits(and_u(a, mask)), from_bits(and_u(b, mask))});
    } else if constexpr (kKind == CodeKind::f32) {
      const float* const w = reinterpret_cast<const float*>(p);
      f.template operator()<0>(k, Pair{load(w), load(w + 16)});
      f.template operator()<1>(k + 1, Pair{load(w + 32), load(w + 48)});
    } else {
      f.template operator()<0>(k, Pair{byte(p), byte(p + 16)});
      f.template operator()<1>(k + 1, Pair{byte(p + 32), byte(p + 48)});
    }
  }
  static inline F32x16 byte(const std::uint8_t* p) {
    return kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p);
  }
};

// H halves of a panel that decode_block made: already near, nothing to fetch ahead.
template <int H>
struct DecodedStep {
  static constexpr std::size_t kBytesOfK = kPanel * sizeof(float);
  template <class F>
  inline __attribute__((always_inline)) void operator()(const std::uint8_t* codes, F&& f) const {
    const float* const w = reinterpret_cast<const float*>(codes);
#pragma GCC unroll 4
    for (std::uint32_t k = 0; k < 8; k += 2) {
      f.template operator()<0>(k, at(w + k * kPanel));
      f.template operator()<1>(k + 1, at(w + k * kPanel + kPanel));
    }
  }

 private:
  static inline Pair at(const float* w) { return {load(w), H == 2 ? load(w + 16) : zero()}; }
};

template <int R, int H>
struct Sums {  // 16 H outputs of R rows
  F32x16 at[R][H];
  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < H; ++h) at[r][h] = zero();
    }
  }
};

// into += the rows' products over one step of n elements, n a multiple of 8; x [k][W], of which the
// first R.
template <int R, int H, int W, class D>
inline __attribute__((always_inline)) void add_step(
    const D& decode, const std::uint8_t* codes, std::uint32_t n, const float* x, Sums<R, H>& into) {
  Sums<R, H> chain[2];
  chain[0].clear();
  chain[1].clear();
  for (std::uint32_t k0 = 0; k0 < n; k0 += 8, codes += 8 * D::kBytesOfK, x += 8 * W) {
    decode(codes, [&]<int kParity>(std::uint32_t k, const Pair& w) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const F32x16 value = set1(x[k * W + static_cast<std::uint32_t>(r)]);
        F32x16(&sums)[H] = chain[kParity].at[r];
        sums[0] = fma(w.low, value, sums[0]);
        if constexpr (H == 2) sums[1] = fma(w.high, value, sums[1]);
      }
    });
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h)
      into.at[r][h] = add(into.at[r][h], add(chain[0].at[r][h], chain[1].at[r][h]));
  }
}

// sums = scale · c + sums, and the biases' share; scales and biases: half(h) of the group's,
// group_sum(r) of a row.
template <int R, int H, class Scales, class Biases, class GroupSum>
inline __attribute__((always_inline)) void add_group(const Sums<R, H>& c,
                                                     bool has_bias,
                                                     Scales&& scales,
                                                     Biases&& biases,
                                                     GroupSum&& group_sum,
                                                     Sums<R, H>& sums) {
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
    const F32x16 scale = scales(h);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums.at[r][h] = fma(scale, c.at[r][h], sums.at[r][h]);
    if (!has_bias) continue;
    const F32x16 bias = biases(h);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums.at[r][h] = fma(bias, set1(group_sum(r)), sums.at[r][h]);
  }
}

// R rows, H halves of a panel from `first` on, decoded on the way.
template <int R, int H, class D>
inline void direct_halves(
    const LinearJob& job, const D& decode, std::uint32_t panel, int first, Sums<R, H>& sums) {
  const PackedLayout& w = job.layout;
  const std::uint8_t* group = job.weight + panel * w.panel_bytes;
  const float* x = job.x;
  const std::uint32_t step = w.group < kStep ? w.group : kStep;
  const std::size_t codes_at = (w.has_bias ? 2 * w.scales_bytes : w.scales_bytes) +
                               static_cast<std::size_t>(first) * D::kBytesOfHalf;
  sums.clear();
  for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes, x += w.group * R) {
    if (w.scale == ScaleKind::none) {
      add_step<R, H, R>(decode, group + codes_at, kStep, x, sums);
      continue;
    }
    Sums<R, H> c;
    c.clear();
    for (std::uint32_t k = 0; k < w.group; k += step)
      add_step<R, H, R>(decode, group + codes_at + k * D::kBytesOfK, step, x + k * R, c);
    const auto group_sum = [&](int r) {
      return job.group_sums[static_cast<std::size_t>(r) * w.n_groups + g];
    };
    add_group(
        c, w.has_bias, [&](int h) { return load_scales(w.scale, group, first + h); },
        [&](int h) { return load_scales(w.scale, group + w.scales_bytes, first + h); }, group_sum,
        sums);
  }
}

template <int R, class D>
inline void direct_panel(const LinearJob& job, const D& decode, std::uint32_t panel) {
  if constexpr (R <= D::kRowsAcross) {
    Sums<R, 2> sums;
    direct_halves(job, decode, panel, 0, sums);
    for (int r = 0; r < R; ++r)
      store_outputs(job, panel, static_cast<std::uint32_t>(r), sums.at[r][0], sums.at[r][1]);
  } else {
    Sums<R, 1> low, high;
    direct_halves(job, decode, panel, 0, low);
    direct_halves(job, decode, panel, 1, high);
    for (int r = 0; r < R; ++r)
      store_outputs(job, panel, static_cast<std::uint32_t>(r), low.at[r][0], high.at[r][0]);
  }
}

// A stretch of K of one panel as f32.
struct DecodedBlock {
  float codes[kBlockK * kPanel];  // [k][output]
  float scales[8 * kPanel];       // [group][output]; groups have at least 16 elements
  float biases[8 * kPanel];
};

template <class D>
inline void decode_block(const PackedLayout& w,
                         const D& decode,
                         const std::uint8_t* group,
                         std::uint32_t n_groups,
                         DecodedBlock& to) {
  for (std::uint32_t g = 0; g < n_groups; ++g, group += w.group_bytes) {
    const std::uint8_t* codes = group;
    if (w.scale != ScaleKind::none) {
      for (int h = 0; h < 2; ++h) {
        store(to.scales + g * kPanel + 16 * h, load_scales(w.scale, group, h));
        if (w.has_bias)
          store(to.biases + g * kPanel + 16 * h, load_scales(w.scale, group + w.scales_bytes, h));
      }
      codes += w.has_bias ? 2 * w.scales_bytes : w.scales_bytes;
    }
    float* const out = to.codes + std::size_t{g} * w.group * kPanel;
    for (std::uint32_t k0 = 0; k0 < w.group; k0 += 8, codes += 8 * D::kBytesOfK) {
      decode(codes, [&]<int kParity>(std::uint32_t k, const Pair& pair) {
        store(out + (k0 + k) * kPanel, pair.low);
        store(out + (k0 + k) * kPanel + 16, pair.high);
      });
    }
  }
}

// A stretch of K that rows are multiplied with: the panel's groups from g0 on, decoded; and what is
// asked for meanwhile, so many lines a step.
struct Stretch {
  const DecodedBlock& block;
  std::uint32_t g0, n_groups;
  LinesAhead ahead;
  std::uint32_t lines_a_step;
};

// sums [row][output] += the stretch's product with R rows from `row` on, H halves of the panel from
// `first` on.
template <int R, int H>
inline void multiply_halves(
    const LinearJob& job, Stretch& at, int first, std::uint32_t row, float* sums) {
  const PackedLayout& w = job.layout;
  const std::size_t padded = std::size_t{w.group} * w.n_groups;
  const float* x = job.x + (row / kRowAlign * padded + std::size_t{at.g0} * w.group) * kRowAlign +
                   row % kRowAlign;
  const std::uint32_t step = w.group < kStep ? w.group : kStep;
  const DecodedStep<H> decode;
  Sums<R, H> total;
  const auto sum_at = [&](int r, int h) {
    return sums + r * static_cast<int>(kPanel) + 16 * (first + h);
  };
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) total.at[r][h] = load(sum_at(r, h));
  }
  for (std::uint32_t g = 0; g < at.n_groups; ++g, x += w.group * kRowAlign) {
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(
        at.block.codes + std::size_t{g} * w.group * kPanel + 16 * first);
    if (w.scale == ScaleKind::none) {
      at.ahead.ask(at.lines_a_step);
      add_step<R, H, kRowAlign>(decode, codes, kStep, x, total);
      continue;
    }
    Sums<R, H> c;
    c.clear();
    for (std::uint32_t k = 0; k < w.group; k += step) {
      at.ahead.ask(at.lines_a_step);
      add_step<R, H, kRowAlign>(decode, codes + k * DecodedStep<H>::kBytesOfK, step,
                                x + k * kRowAlign, c);
    }
    const auto group_sum = [&](int r) {
      return job.group_sums[(row + static_cast<std::size_t>(r)) * w.n_groups + at.g0 + g];
    };
    add_group(
        c, w.has_bias, [&](int h) { return load(at.block.scales + g * kPanel + 16 * (first + h)); },
        [&](int h) { return load(at.block.biases + g * kPanel + 16 * (first + h)); }, group_sum,
        total);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) store(sum_at(r, h), total.at[r][h]);
  }
}

// n rows, at most R.
template <int R>
inline void multiply_rows(
    const LinearJob& job, Stretch& at, std::uint32_t row, std::uint32_t n, float* sums) {
  if constexpr (R > 1) {
    if (n < R) return multiply_rows<R - 1>(job, at, row, n, sums);
  }
  for (int half = 0; half < 2; half += kBlockHalves)
    multiply_halves<R, kBlockHalves>(job, at, half, row, sums);
}

// f(row, n) for runs of at most kBlockRows rows, as even as may be, none across a row block.
template <class F>
inline void for_row_runs(std::uint32_t n_rows, F&& f) {
  for (std::uint32_t block = 0; block < n_rows; block += kRowAlign) {
    const std::uint32_t n = n_rows - block < kRowAlign ? n_rows - block : kRowAlign,
                        n_runs = (n + kBlockRows - 1) / kBlockRows;
    for (std::uint32_t i = 0; i < n_runs; ++i)
      f(block + n * i / n_runs, n * (i + 1) / n_runs - n * i / n_runs);
  }
}

template <class D>
inline void decoded_panel(const LinearJob& job,
                          const D& decode,
                          std::uint32_t panel,
                          std::uint32_t row_begin,
                          std::uint32_t row_end,
                          DecodedBlock& block,
                          float* sums) {
  const PackedLayout& w = job.layout;
  const std::uint32_t groups_a_block = kBlockK / w.group, n_rows = row_end - row_begin,
                      step = w.group < kStep ? w.group : kStep;
  std::uint32_t n_runs = 0;
  for_row_runs(n_rows, [&](std::uint32_t, std::uint32_t) { ++n_runs; });
  for (std::size_t i = 0; i < std::size_t{n_rows} * kPanel; i += 16) store(sums + i, zero());
  const std::uint8_t* weight = job.weight + panel * w.panel_bytes;
  for (std::uint32_t g = 0; g < w.n_groups; g += groups_a_block) {
    const std::uint32_t left = w.n_groups - g, n = left < groups_a_block ? left : groups_a_block;
    decode_block(w, decode, weight, n, block);
    weight += n * w.group_bytes;
    const std::uint32_t lines = static_cast<std::uint32_t>(n * w.group_bytes / 64),
                        n_steps = n_runs * (2 / kBlockHalves) * n * (w.group / step);
    Stretch at{block, g, n, {weight, weight + n * w.group_bytes}, (lines + n_steps - 1) / n_steps};
    for_row_runs(n_rows, [&](std::uint32_t row, std::uint32_t rows) {
      multiply_rows<kBlockRows>(job, at, row_begin + row, rows, sums + std::size_t{row} * kPanel);
    });
  }
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const float* const from = sums + std::size_t{r} * kPanel;
    store_outputs(job, panel, row_begin + r, load(from), load(from + 16));
  }
}

// The job's rows, at most R.
template <int R, class D>
inline void direct_rows(const LinearJob& job, const D& decode, std::uint32_t panel) {
  if constexpr (R > 1) {
    if (job.n_rows < R) return direct_rows<R - 1>(job, decode, panel);
  }
  direct_panel<R>(job, decode, panel);
}

template <class D>
inline void linear_panels(const LinearJob& job,
                          const D& decode,
                          std::uint32_t panel_begin,
                          std::uint32_t panel_end,
                          std::uint32_t row_begin,
                          std::uint32_t row_end,
                          float* scratch) {
  if (job.n_rows <= kDirectRows) {
    for (std::uint32_t p = panel_begin; p < panel_end; ++p)
      direct_rows<kDirectRows>(job, decode, p);
    return;
  }
  auto& block = *reinterpret_cast<DecodedBlock*>(scratch);
  float* const sums = scratch + sizeof(DecodedBlock) / sizeof(float);
  for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    for (std::uint32_t row = row_begin; row < row_end; row += kRowChunk) {
      const std::uint32_t end = row_end - row < kRowChunk ? row_end : row + kRowChunk;
      decoded_panel(job, decode, panel, row, end, block, sums);
    }
  }
}

// f(decoder) with the decoder of a layout.
template <class F>
inline void with_decoder(const PackedLayout& w, F&& f) {
  switch (w.code) {
    case CodeKind::bf16:
      return f(Decoder<CodeKind::bf16, false>{});
    case CodeKind::f32:
      return f(Decoder<CodeKind::f32, false>{});
    case CodeKind::nibble:
      return w.is_signed ? f(Decoder<CodeKind::nibble, true>{})
                         : f(Decoder<CodeKind::nibble, false>{});
    case CodeKind::byte:
      return w.is_signed ? f(Decoder<CodeKind::byte, true>{}) : f(Decoder<CodeKind::byte, false>{});
  }
}

void linear(const LinearJob& job,
            std::uint32_t panel_begin,
            std::uint32_t panel_end,
            std::uint32_t row_begin,
            std::uint32_t row_end,
            float* scratch) {
  with_decoder(job.layout, [&](const auto& decode) {
    linear_panels(job, decode, panel_begin, panel_end, row_begin, row_end, scratch);
  });
}

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
  DecodedBlock block;
  with_decoder(w, [&](const auto& decode) {
    for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes) {
      decode_block(w, decode, group, 1, block);
      for (std::uint32_t k = 0; k < w.group && g * w.group + k < n; ++k) {
        float value = block.codes[k * kPanel + lane];
        if (w.scale != ScaleKind::none)
          value = fma1(value, block.scales[lane], w.has_bias ? block.biases[lane] : 0.0f);
        out[g * w.group + k] = value * factor;
      }
    }
  });
}

}  // namespace
}  // namespace kvasir::backend::cpu
