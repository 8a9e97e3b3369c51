// Products of quantized weights and activations of 8 bits: a group's codes are multiplied in
// integers, exactly, in any order; what the groups give is added up in one order of f32, ascending
// (docs/numerics.md). Lanes are outputs. Codes are unpacked anew for every run of rows, which costs
// less than keeping them.

namespace kvasir::backend::cpu {
namespace {

// A panel's way past a run of rows.
template <int R, int H>
struct Int8Run {
  const std::uint8_t* group;  // of the panel
  int first;                  // half
  const std::uint32_t* v;     // of the first row
  const float* factors;       // likewise
  // Weights that come next: both halves are used at once, and then a little ahead in their stream;
  // one half: the next panel, some lines a group.
  LinesAhead ahead;
  std::uint32_t lines_a_group;
  F32x16 sums[R][H];
};

// A line of codes of each half: two dwords of K of nibbles, one of bytes.
template <bool kNibble, int R, int H>
inline __attribute__((always_inline)) void add_line(const std::uint8_t* codes,
                                                    const std::uint32_t* v,
                                                    std::uint32_t width,
                                                    U32x16 (&dots)[R][H]) {
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
    const U32x16 line = load_u(codes + 64 * h);
    if constexpr (kNibble) {
      const U32x16 mask = set1_u(0x0f0f0f0fu), low = and_u(line, mask),
                   high = and_u(shift_right<4>(line), mask);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) dots[r][h] = dot<true>(dots[r][h], low, v[r]);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
        dots[r][h] = dot<true>(dots[r][h], high, v[width + static_cast<std::uint32_t>(r)]);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) dots[r][h] = dot<false>(dots[r][h], line, v[r]);
    }
  }
}

template <bool kNibble, int R, int H>
inline __attribute__((always_inline)) void multiply_panel(const Int8Job& job,
                                                          std::uint32_t width,
                                                          Int8Run<R, H>& run) {
  const PackedLayout& w = job.layout;
  constexpr std::uint32_t kKOfLine = kNibble ? 8 : 4;
  const std::size_t codes_at = (w.has_bias ? 2 : 1) * w.scales_bytes + 64 * run.first;
  const std::uint8_t* group = run.group;
  const std::uint32_t* v = run.v;
  const float* factors = run.factors;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) run.sums[r][h] = zero();
  }
  for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes) {
    if constexpr (H == 2) {
      prefetch(group + kPrefetchBytes);
      if (w.has_bias) prefetch(group + kPrefetchBytes + w.scales_bytes);
    } else {
      run.ahead.ask(run.lines_a_group);
    }
    U32x16 dots[R][H];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      std::uint32_t start = 0;
      __builtin_memcpy(&start, factors + width + r, sizeof(start));
#pragma GCC unroll 2
      for (int h = 0; h < H; ++h) dots[r][h] = set1_u(start);
    }
    const std::uint8_t* codes = group + codes_at;
#pragma GCC unroll 4
    for (std::uint32_t k = 0; k < w.group; k += kKOfLine, codes += 128) {
      if constexpr (H == 2) {
        prefetch(codes + kPrefetchBytes);
        prefetch(codes + kPrefetchBytes + 64);
      }
      add_line<kNibble>(codes, v, width, dots);
      v += (kNibble ? 2 : 1) * width;
    }
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const F32x16 scale = load_scales(w.scale, group, run.first + h);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
        run.sums[r][h] = fma(scale, mul(to_f32(dots[r][h]), set1(factors[r])), run.sums[r][h]);
      if (!w.has_bias) continue;
      const F32x16 bias = load_scales(w.scale, group + w.scales_bytes, run.first + h);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
        run.sums[r][h] =
            fma(bias, set1(factors[2 * width + static_cast<std::uint32_t>(r)]), run.sums[r][h]);
    }
    factors += kFactors * width;
  }
}

// The job's lone run of rows, side by side.
template <bool kNibble, int R>
inline void int8_direct(const Int8Job& job, std::uint32_t panel) {
  const PackedLayout& w = job.layout;
  const std::uint8_t* const weight = job.weight + panel * w.panel_bytes;
  const auto lines = static_cast<std::uint32_t>((w.group_bytes + 63) / 64);
  F32x16 sums[R][2];
  if constexpr (R <= kInt8WideRows) {
    Int8Run<R, 2> run{.group = weight,
                      .first = 0,
                      .v = job.v,
                      .factors = job.factors,
                      .ahead = {},
                      .lines_a_group = 0,
                      .sums = {}};
    multiply_panel<kNibble>(job, R, run);
    for (int r = 0; r < R; ++r) sums[r][0] = run.sums[r][0], sums[r][1] = run.sums[r][1];
  } else {
    LinesAhead ahead{weight + w.panel_bytes, weight + 2 * w.panel_bytes};
    for (int half = 0; half < 2; ++half) {
      Int8Run<R, 1> run{.group = weight,
                        .first = half,
                        .v = job.v,
                        .factors = job.factors,
                        .ahead = ahead,
                        .lines_a_group = (lines + 1) / 2,
                        .sums = {}};
      multiply_panel<kNibble>(job, R, run);
      ahead = run.ahead;
      for (int r = 0; r < R; ++r) sums[r][half] = run.sums[r][0];
    }
  }
  for (int r = 0; r < R; ++r)
    store_outputs(job, panel, static_cast<std::uint32_t>(r), sums[r][0], sums[r][1]);
}

template <bool kNibble, int R>
inline void int8_direct_rows(const Int8Job& job, std::uint32_t panel) {
  if constexpr (R > 1) {
    if (job.n_rows < R) return int8_direct_rows<kNibble, R - 1>(job, panel);
  }
  int8_direct<kNibble, R>(job, panel);
}

// R rows from `row` on, none across a row block.
template <bool kNibble, int R>
inline void int8_run(const Int8Job& job,
                     std::uint32_t panel,
                     std::uint32_t row,
                     std::uint32_t lines_a_group,
                     LinesAhead& ahead) {
  const PackedLayout& w = job.layout;
  const std::size_t block = row / kRowAlign, at = row % kRowAlign;
  F32x16 sums[2][R];
  for (int half = 0; half < 2; ++half) {
    Int8Run<R, 1> run{.group = job.weight + panel * w.panel_bytes,
                      .first = half,
                      .v = job.v + block * kRowAlign * (int8_row_bytes(w) / 4) + at,
                      .factors = job.factors + block * w.n_groups * kFactors * kRowAlign + at,
                      .ahead = ahead,
                      .lines_a_group = lines_a_group,
                      .sums = {}};
    multiply_panel<kNibble>(job, kRowAlign, run);
    ahead = run.ahead;
    for (int r = 0; r < R; ++r) sums[half][r] = run.sums[r][0];
  }
  for (int r = 0; r < R; ++r)
    store_outputs(job, panel, row + static_cast<std::uint32_t>(r), sums[0][r], sums[1][r]);
}

template <bool kNibble, int R>
inline void int8_rows(const Int8Job& job,
                      std::uint32_t panel,
                      std::uint32_t row,
                      std::uint32_t n,
                      std::uint32_t lines_a_group,
                      LinesAhead& ahead) {
  if constexpr (R > 1) {
    if (n < R) return int8_rows<kNibble, R - 1>(job, panel, row, n, lines_a_group, ahead);
  }
  int8_run<kNibble, R>(job, panel, row, lines_a_group, ahead);
}

// f(row, n) for runs of at most kInt8Rows rows, as even as may be, none across a row block.
template <class F>
inline void for_int8_runs(std::uint32_t row_begin, std::uint32_t row_end, F&& f) {
  for (std::uint32_t block = row_begin; block < row_end; block += kRowAlign) {
    const std::uint32_t n = row_end - block < kRowAlign ? row_end - block : kRowAlign,
                        n_runs = (n + kInt8Rows - 1) / kInt8Rows;
    for (std::uint32_t i = 0; i < n_runs; ++i)
      f(block + n * i / n_runs, n * (i + 1) / n_runs - n * i / n_runs);
  }
}

template <bool kNibble>
inline void int8_panels(const Int8Job& job,
                        std::uint32_t panel_begin,
                        std::uint32_t panel_end,
                        std::uint32_t row_begin,
                        std::uint32_t row_end) {
  const PackedLayout& w = job.layout;
  if (job.n_rows <= kInt8DirectRows) {
    for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel)
      int8_direct_rows<kNibble, static_cast<int>(kInt8DirectRows)>(job, panel);
    return;
  }
  std::uint32_t n_runs = 0;
  for_int8_runs(row_begin, row_end, [&](std::uint32_t, std::uint32_t) { ++n_runs; });
  const std::uint32_t n_steps = 2 * n_runs * w.n_groups,
                      lines = static_cast<std::uint32_t>((w.panel_bytes + 63) / 64),
                      lines_a_group = (lines + n_steps - 1) / n_steps;
  for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    const std::uint8_t* const next = job.weight + (panel + 1) * w.panel_bytes;
    LinesAhead ahead{next, next + w.panel_bytes};
    for_int8_runs(row_begin, row_end, [&](std::uint32_t row, std::uint32_t n) {
      int8_rows<kNibble, kInt8Rows>(job, panel, row, n, lines_a_group, ahead);
    });
  }
}

void linear_int8(const Int8Job& job,
                 std::uint32_t panel_begin,
                 std::uint32_t panel_end,
                 std::uint32_t row_begin,
                 std::uint32_t row_end,
                 float*) {
  job.layout.code == CodeKind::nibble
      ? int8_panels<true>(job, panel_begin, panel_end, row_begin, row_end)
      : int8_panels<false>(job, panel_begin, panel_end, row_begin, row_end);
}

constexpr Int8Kernels kInt8Table{.name = KVASIR_ISA_NAME,
                                 .direct_rows = kInt8DirectRows,
                                 .quantize = &quantize,
                                 .linear = &linear_int8};

}  // namespace
}  // namespace kvasir::backend::cpu
