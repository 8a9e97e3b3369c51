// Matrix products in the order of docs/numerics.md: per step of 32 along K one chain of fused
// multiply-adds over the even and one over the odd elements, from zero; lanes are outputs. The unit
// decides by what: linear_floats.inc.h or linear_dots.inc.h. Up to
// kDirectRows rows are multiplied while a panel is decoded; more rows share panels decoded into L1,
// a stretch of K at a time, while the next stretch is on its way. Both give the same bits.

namespace kvasir::backend::cpu {
namespace {

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

// f(r, h) for R rows and H halves, written out.
template <int R, int H, class F>
inline __attribute__((always_inline)) void for_sums(F&& f) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) f(r, h);
  }
}

// into += the rows' products over one step of n elements, n a multiple of 8; x [unit][W], of which
// the first R.
template <int R, int H, int W, class D>
inline __attribute__((always_inline)) void add_step(
    const D& decode, const std::uint8_t* codes, std::uint32_t n, const XUnit* x, Sums<R, H>& into) {
  Sums<R, H> chain[2];
  chain[0].clear();
  chain[1].clear();
  for (std::uint32_t k0 = 0; k0 < n; k0 += 8, codes += 8 * D::kBytesOfK, x += 8 / kUnit * W) {
    decode(codes, [&]<int kParity>(std::uint32_t unit, const Pair& w) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Operand value = spread(x[unit * W + static_cast<std::uint32_t>(r)]);
        F32x16(&sums)[H] = chain[kParity].at[r];
        sums[0] = multiply_add(w.low, value, sums[0]);
        if constexpr (H == 2) sums[1] = multiply_add(w.high, value, sums[1]);
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
  const XUnit* x = x_of(job);
  const std::uint32_t step = w.group < kStep ? w.group : kStep;
  const std::size_t scales_bytes = w.has_bias ? 2 * w.scales_bytes : w.scales_bytes,
                    codes_at = scales_bytes + static_cast<std::size_t>(first) * D::kBytesOfHalf;
  sums.clear();
  for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes, x += w.group / kUnit * R) {
    if (w.scale == ScaleKind::none) {
      add_step<R, H, R>(decode, group + codes_at, kStep, x, sums);
      continue;
    }
    for (std::size_t line = 0; line < scales_bytes; line += 64) ask_ahead(group + line);
    Sums<R, H> c;
    c.clear();
    for (std::uint32_t k = 0; k < w.group; k += step)
      add_step<R, H, R>(decode, group + codes_at + k * D::kBytesOfK, step, x + k / kUnit * R, c);
    const auto group_sum = [&](int r) {
      return job.group_sums[static_cast<std::size_t>(r) * w.n_groups + g];
    };
    add_group(
        c, w.has_bias, [&](int h) { return load_scales(w.scale, group, first + h); },
        [&](int h) { return load_biases(w, group, first + h); }, group_sum, sums);
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

// A stretch of K of one panel, decoded.
struct DecodedBlock {
  float codes[kBlockK / kUnit * kPanel];  // operands: [unit][output]
  float scales[8 * kPanel];               // [group][output]; groups have at least 16 elements
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
        if (w.has_bias) store(to.biases + g * kPanel + 16 * h, load_biases(w, group, h));
      }
      codes += w.has_bias ? 2 * w.scales_bytes : w.scales_bytes;
    }
    float* const out = to.codes + std::size_t{g} * w.group / kUnit * kPanel;
    for (std::uint32_t k0 = 0; k0 < w.group; k0 += 8, codes += 8 * D::kBytesOfK) {
      decode(codes, [&]<int kParity>(std::uint32_t unit, const Pair& pair) {
        store_operand(out + (k0 / kUnit + unit) * kPanel, pair.low);
        store_operand(out + (k0 / kUnit + unit) * kPanel + 16, pair.high);
      });
    }
  }
}

// A stretch of K that rows are multiplied with: the panel's groups from g0 on, decoded; and what is
// asked for meanwhile, so many lines a group.
struct Stretch {
  const DecodedBlock& block;
  std::uint32_t g0, n_groups;
  LinesAhead ahead;
  std::uint32_t lines_a_group;
};

enum class Chain : std::uint8_t { even, odd, both };

// c = the rows' products over the chain's elements of n, a multiple of 8; x [unit][kRowAlign], of
// which the first R.
template <Chain kChain, int R, int H>
inline __attribute__((always_inline)) void sum_chain(const std::uint8_t* codes,
                                                     std::uint32_t n,
                                                     const XUnit* x,
                                                     Sums<R, H>& c) {
  const DecodedStep<H> decode;
  c.clear();
  for (std::uint32_t k = 0; k < n; k += 8) {
    decode(codes, [&]<int kParity>(std::uint32_t unit, const Pair& w) {
      if constexpr (kChain != Chain::both && kParity != static_cast<int>(kChain)) return;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Operand value = spread(x[unit * kRowAlign + static_cast<std::uint32_t>(r)]);
        c.at[r][0] = multiply_add(w.low, value, c.at[r][0]);
        if constexpr (H == 2) c.at[r][1] = multiply_add(w.high, value, c.at[r][1]);
      }
    });
    codes += 8 * DecodedStep<H>::kBytesOfK, x += 8 / kUnit * kRowAlign;
  }
}

// Sums that wait in memory for the chain that registers hold: so one chain at a time has them all.
template <int R, int H>
struct Waiting {
  float at[R][H][16];
  inline __attribute__((always_inline)) void keep(const Sums<R, H>& c) {
    for_sums<R, H>([&](int r, int h) { store(at[r][h], c.at[r][h]); });
  }
  // c = these + c.
  inline __attribute__((always_inline)) void add_to(Sums<R, H>& c) const {
    for_sums<R, H>([&](int r, int h) { c.at[r][h] = add(load(at[r][h]), c.at[r][h]); });
  }
};

// c = the rows' products over one step of n elements.
template <int R, int H>
inline __attribute__((always_inline)) void sum_step(const std::uint8_t* codes,
                                                    std::uint32_t n,
                                                    const XUnit* x,
                                                    Sums<R, H>& c) {
  Waiting<R, H> even;
  sum_chain<Chain::even>(codes, n, x, c);
  even.keep(c);
  sum_chain<Chain::odd>(codes, n, x, c);
  even.add_to(c);
}

// c = the rows' products over a group; on a grid all its sums but the last are exact, in whatever
// order (docs/numerics.md).
template <int R, int H, bool kOnGrid>
inline __attribute__((always_inline)) void sum_group(const std::uint8_t* codes,
                                                     std::uint32_t group,
                                                     const XUnit* x,
                                                     Sums<R, H>& c) {
  const std::uint32_t step = group < kStep ? group : kStep, last = group - step;
  const auto* const last_codes = codes + last * DecodedStep<H>::kBytesOfK;
  Waiting<R, H> before;
  if constexpr (kOnGrid) {
    if (last == 0) return sum_chain<Chain::both>(codes, step, x, c);
    sum_chain<Chain::both>(codes, last, x, c);
    before.keep(c);
    sum_chain<Chain::both>(last_codes, step, x + last / kUnit * kRowAlign, c);
    before.add_to(c);
  } else {
    c.clear();
    for (std::uint32_t k = 0; k < group; k += step) {
      before.keep(c);
      sum_step(codes + k * DecodedStep<H>::kBytesOfK, step, x + k / kUnit * kRowAlign, c);
      before.add_to(c);
    }
  }
}

enum class Terms : std::uint8_t { dense, quantized, on_grid };

// sums [row][output] += the stretch's product with R rows from `row` on, H halves of the panel from
// `first` on.
template <int R, int H, Terms kTerms>
inline void multiply_halves(
    const LinearJob& job, Stretch& at, int first, std::uint32_t row, float* sums) {
  const PackedLayout& w = job.layout;
  const std::size_t padded = std::size_t{w.group} * w.n_groups;
  const XUnit* x = x_of(job) +
                   (row / kRowAlign * padded + std::size_t{at.g0} * w.group) / kUnit * kRowAlign +
                   row % kRowAlign;
  const auto* codes =
      reinterpret_cast<const std::uint8_t*>(at.block.codes) + sizeof(float) * 16 * first;
  const auto place = [&](int r, int h) {
    return sums + r * static_cast<int>(kPanel) + 16 * (first + h);
  };
  for (std::uint32_t g = 0; g < at.n_groups; ++g) {
    at.ahead.ask(at.lines_a_group);
    Sums<R, H> c;
    if constexpr (kTerms == Terms::dense) {
      sum_step(codes, kStep, x, c);
      for_sums<R, H>([&](int r, int h) { store(place(r, h), add(load(place(r, h)), c.at[r][h])); });
    } else {
      sum_group<R, H, kTerms == Terms::on_grid>(codes, w.group, x, c);
      const float* const scales = at.block.scales + g * kPanel + 16 * first;
      const float* const biases = at.block.biases + g * kPanel + 16 * first;
      for_sums<R, H>([&](int r, int h) {
        F32x16 sum = fma(load(scales + 16 * h), c.at[r][h], load(place(r, h)));
        if (w.has_bias) {
          const std::size_t of_row = row + static_cast<std::size_t>(r);
          const F32x16 group_sum = set1(job.group_sums[of_row * w.n_groups + at.g0 + g]);
          sum = fma(load(biases + 16 * h), group_sum, sum);
        }
        store(place(r, h), sum);
      });
    }
    codes += w.group * DecodedStep<H>::kBytesOfK, x += w.group / kUnit * kRowAlign;
  }
}

// n rows, at most R.
template <int R, Terms kTerms>
inline void multiply_rows(
    const LinearJob& job, Stretch& at, std::uint32_t row, std::uint32_t n, float* sums) {
  if constexpr (R > 1) {
    if (n < R) return multiply_rows<R - 1, kTerms>(job, at, row, n, sums);
  }
  for (int half = 0; half < 2; half += kBlockHalves)
    multiply_halves<R, kBlockHalves, kTerms>(job, at, half, row, sums);
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
  const std::uint32_t groups_a_block = kBlockK / w.group, n_rows = row_end - row_begin;
  std::uint32_t n_runs = 0;
  for_row_runs(n_rows, [&](std::uint32_t, std::uint32_t) { ++n_runs; });
  for (std::size_t i = 0; i < std::size_t{n_rows} * kPanel; i += 16) store(sums + i, zero());
  const std::uint8_t* weight = job.weight + panel * w.panel_bytes;
  for (std::uint32_t g = 0; g < w.n_groups; g += groups_a_block) {
    const std::uint32_t left = w.n_groups - g, n = left < groups_a_block ? left : groups_a_block;
    decode_block(w, decode, weight, n, block);
    weight += n * w.group_bytes;
    const std::uint32_t lines = static_cast<std::uint32_t>(n * w.group_bytes / 64),
                        n_asks = n_runs * (2 / kBlockHalves) * n;
    Stretch at{block, g, n, {weight, weight + n * w.group_bytes}, (lines + n_asks - 1) / n_asks};
    for_row_runs(n_rows, [&](std::uint32_t row, std::uint32_t rows) {
      float* const to = sums + std::size_t{row} * kPanel;
      row += row_begin;
      if (w.grid != 0) return multiply_rows<kBlockRows, Terms::on_grid>(job, at, row, rows, to);
      w.scale == ScaleKind::none
          ? multiply_rows<kBlockRows, Terms::dense>(job, at, row, rows, to)
          : multiply_rows<kBlockRows, Terms::quantized>(job, at, row, rows, to);
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
      if constexpr (kUnit == 1) return f(Decoder<CodeKind::f32, false>{});
      return;  // never asked of pairs
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

}  // namespace
}  // namespace kvasir::backend::cpu
