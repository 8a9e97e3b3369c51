// Products of quantized weights and activations that are integers, of 8 bits or (those of the exact
// mode on their grid) of two digits of 8 bits, 256 · the first + the second: a group's codes are
// multiplied in integers, exactly, in any order; what the groups give is added up in one order of
// f32, ascending (docs/numerics.md). Lanes are outputs. Codes are unpacked anew for every run of
// rows, which costs less than keeping them.

namespace kvasir::backend::cpu {
namespace {

// H halves of a panel, from `first` on, past a run of R rows of D digits.
template <int D, int R, int H>
struct Int8Run {
  const std::uint8_t* panel;
  int first;
  const std::uint32_t* v;  // of the first row
  const float* factors;    // likewise
  std::uint32_t width;     // rows of a block
  // Weights that come next. A lone run: a little ahead in the stream; several: the next panel, some
  // lines a group.
  LinesAhead ahead;
  std::uint32_t lines_a_group;
  F32x16 sums[R][H];
};

template <bool kNibble, int N, int H>
inline __attribute__((always_inline)) void add_dword(const U32x16 (&codes)[H],
                                                     const std::uint32_t* v,
                                                     U32x16 (&dots)[N][H]) {
#pragma GCC unroll 16
  for (int r = 0; r < N; ++r) {
    const U32x16 all = set1_u(v[r]);
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) dots[r][h] = dot<kNibble>(dots[r][h], codes[h], all);
  }
}

// A line of codes of each half: two dwords of K of nibbles, one of bytes. v: [dword][n_dwords].
template <bool kNibble, int N, int H>
inline __attribute__((always_inline)) void add_line(const std::uint8_t* codes,
                                                    const std::uint32_t* v,
                                                    std::uint32_t n_dwords,
                                                    U32x16 (&dots)[N][H]) {
  U32x16 lines[H];
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) lines[h] = load_u(codes + 64 * h);
  if constexpr (kNibble) {
    const U32x16 mask = set1_u(0x0f0f0f0fu);
    U32x16 part[H];
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) part[h] = and_u(lines[h], mask);
    add_dword<true>(part, v, dots);
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) part[h] = and_u(shift_right<4>(lines[h]), mask);
    add_dword<true>(part, v + n_dwords, dots);
  } else {
    add_dword<false>(lines, v, dots);
  }
}

// sums = scale · (integers · s_x) + sums, and the biases' share.
template <int D, int R, int H>
inline __attribute__((always_inline)) void add_group_int8(const PackedLayout& w,
                                                          const std::uint8_t* group,
                                                          const float* factors,
                                                          const U32x16 (&dots)[R * D][H],
                                                          Int8Run<D, R, H>& run) {
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
    const F32x16 scale = load_scales(w.scale, group, run.first + h);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      U32x16 sum = dots[D * r][h];
      if constexpr (D == 2) sum = add_u(shift_left<8>(sum), dots[D * r + 1][h]);
      run.sums[r][h] = fma(scale, mul(to_f32(sum), set1(factors[r])), run.sums[r][h]);
    }
    if (!w.has_bias) continue;
    const F32x16 bias = load_scales(w.scale, group + w.scales_bytes, run.first + h);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
      run.sums[r][h] =
          fma(bias, set1(factors[2 * run.width + static_cast<std::uint32_t>(r)]), run.sums[r][h]);
  }
}

template <bool kNibble, bool kIsLone, int D, int R, int H>
inline __attribute__((always_inline)) void multiply_panel(const PackedLayout& w,
                                                          Int8Run<D, R, H>& run) {
  constexpr std::uint32_t kKOfLine = kNibble ? 8 : 4;
  const std::size_t codes_at =
      (w.has_bias ? 2 : 1) * w.scales_bytes + 64 * static_cast<std::size_t>(run.first);
  const std::uint8_t* group = run.panel;
  const std::uint32_t* v = run.v;
  const float* factors = run.factors;
  const std::uint32_t width = run.width;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) run.sums[r][h] = zero();
  }
  for (std::uint32_t g = 0; g < w.n_groups; ++g, group += w.group_bytes) {
    if constexpr (kIsLone) {
      ask_ahead(group);
      if (w.has_bias) ask_ahead(group + w.scales_bytes);
    } else {
      run.ahead.ask(run.lines_a_group);
    }
    U32x16 dots[R * D][H];
#pragma GCC unroll 16
    for (int r = 0; r < R * D; ++r) {
      std::uint32_t start = 0;
      if (r % D == D - 1) __builtin_memcpy(&start, factors + width + r / D, sizeof(start));
#pragma GCC unroll 2
      for (int h = 0; h < H; ++h) dots[r][h] = set1_u(start);
    }
    const std::uint8_t* codes = group + codes_at;
#pragma GCC unroll 4
    for (std::uint32_t k = 0; k < w.group; k += kKOfLine, codes += 128) {
      if constexpr (kIsLone) {
        ask_ahead(codes);
        if constexpr (H == 2) ask_ahead(codes + 64);
      }
      add_line<kNibble>(codes, v, D * width, dots);
      v += (kNibble ? 2 : 1) * D * width;
    }
    add_group_int8(w, group, factors, dots, run);
    factors += kFactors * width;
  }
}

// What the runs of rows past one panel have in common.
struct Int8Panel {
  const Int8Job& job;
  std::uint32_t panel, width;
  LinesAhead ahead;
  std::uint32_t lines_a_group;
};

// R rows from `row` on, none across a row block.
template <bool kNibble, bool kIsLone, int D, int R>
inline void int8_run(Int8Panel& at, std::uint32_t row) {
  const PackedLayout& w = at.job.layout;
  const std::size_t block = row / at.width, in_block = row % at.width;
  F32x16 sums[R][2];
  for (int half = 0; half < 2; half += kInt8Halves) {
    Int8Run<D, R, kInt8Halves> run{
        .panel = at.job.weight + at.panel * w.panel_bytes,
        .first = half,
        .v = at.job.v + D * (block * at.width * (int8_row_bytes(w) / 4) + in_block),
        .factors = at.job.factors + block * w.n_groups * kFactors * at.width + in_block,
        .width = at.width,
        .ahead = at.ahead,
        .lines_a_group = at.lines_a_group,
        .sums = {}};
    multiply_panel<kNibble, kIsLone>(w, run);
    at.ahead = run.ahead;
    for (int r = 0; r < R; ++r) {
      for (int h = 0; h < kInt8Halves; ++h) sums[r][half + h] = run.sums[r][h];
    }
  }
  for (int r = 0; r < R; ++r)
    store_outputs(at.job, at.panel, row + static_cast<std::uint32_t>(r), sums[r][0], sums[r][1]);
}

// n rows, at most R.
template <bool kNibble, bool kIsLone, int D, int R>
inline void int8_rows(Int8Panel& at, std::uint32_t row, std::uint32_t n) {
  if constexpr (R > 1) {
    if (n < R) return int8_rows<kNibble, kIsLone, D, R - 1>(at, row, n);
  }
  int8_run<kNibble, kIsLone, D, R>(at, row);
}

// f(row, n) for runs of at most kMost rows, as even as may be, none across a row block.
template <std::uint32_t kMost = kInt8Rows, class F>
inline void for_int8_runs(std::uint32_t row_begin, std::uint32_t row_end, F&& f) {
  for (std::uint32_t block = row_begin; block < row_end; block += kRowAlign) {
    const std::uint32_t n = row_end - block < kRowAlign ? row_end - block : kRowAlign,
                        n_runs = (n + kMost - 1) / kMost;
    for (std::uint32_t i = 0; i < n_runs; ++i)
      f(block + n * i / n_runs, n * (i + 1) / n_runs - n * i / n_runs);
  }
}

template <bool kNibble, int D>
inline void int8_panels(const Int8Job& job,
                        std::uint32_t panel_begin,
                        std::uint32_t panel_end,
                        std::uint32_t row_begin,
                        std::uint32_t row_end) {
  const PackedLayout& w = job.layout;
  std::uint32_t n_runs = 0;
  for_int8_runs(row_begin, row_end, [&](std::uint32_t, std::uint32_t) { ++n_runs; });
  const std::uint32_t n_steps = 2 / kInt8Halves * n_runs * w.n_groups,
                      lines = static_cast<std::uint32_t>((w.panel_bytes + 63) / 64),
                      width = job.n_rows <= kInt8DirectRows ? job.n_rows : kRowAlign;
  const bool is_lone = n_steps == w.n_groups;
  for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    const std::uint8_t* const next = job.weight + (panel + 1) * w.panel_bytes;
    Int8Panel at{.job = job,
                 .panel = panel,
                 .width = width,
                 .ahead = {next, next + w.panel_bytes},
                 .lines_a_group = (lines + n_steps - 1) / n_steps};
    for_int8_runs(row_begin, row_end, [&](std::uint32_t row, std::uint32_t n) {
      is_lone ? int8_rows<kNibble, true, D, kInt8Rows>(at, row, n)
              : int8_rows<kNibble, false, D, kInt8Rows>(at, row, n);
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
      ? int8_panels<true, 1>(job, panel_begin, panel_end, row_begin, row_end)
      : int8_panels<false, 1>(job, panel_begin, panel_end, row_begin, row_end);
}

constexpr Int8Kernels kInt8Table{.name = KVASIR_ISA_NAME,
                                 .direct_rows = kInt8DirectRows,
                                 .quantize = &quantize,
                                 .linear = &linear_int8};

}  // namespace
}  // namespace kvasir::backend::cpu
