// Products with 8-bit activations on tiles, the integers of linear_int8.inc.h: a tile product is a
// step of up to 64 elements of one group. A stretch of four steps of half a panel stays in tiles
// for all row blocks; a slice is a stretch of one row block. A slice's sums of integers leave the
// tiles for memory, and lanes put scales on them while the tiles are at the next slice.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kInt8TileRows = 16;
constexpr std::size_t kInt8TileFloats = kInt8TileRows * 16;
constexpr std::uint32_t kInt8Steps = 4;  // of a stretch
constexpr std::size_t kInt8HalfBytes = kInt8Steps * 64 * 16;
constexpr std::size_t kInt8AheadBytes = 4096;
constexpr std::uint32_t kInt8TallRows = 96;  // from which on unpacking is best done apart

struct Int8Stretch {
  std::uint8_t codes[2][kInt8HalfBytes];  // [half][step][dword of K][output][4]
  float scales[kInt8Steps * kPanel];      // [group][output]
  float biases[kInt8Steps * kPanel];
};

struct Int8Scratch {
  Int8Stretch stretches[2];
  std::int32_t products[2][kInt8Steps * kInt8TileFloats];  // [slice % 2][group][row][output]
  float sums[kRowChunk * kPanel];                          // [row block][half][row][output]
  float unused[kInt8TileFloats];
};
static_assert(sizeof(Int8Scratch) <= kLinearScratchFloats * sizeof(float));

enum Int8Tile {
  kBytes0,
  kBytes1,
  kBytes2,
  kBytes3,
  kIntegers0,
  kIntegers1,
  kActivations0,
  kActivations1
};

// C += A · B: A's signed bytes, B's signed or unsigned ones.
template <int C, int A, int B, bool kSigned>
inline __attribute__((always_inline)) void multiply_bytes(HardwareTiles&) {
  if constexpr (kSigned) {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  } else {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
}
template <int C, int A, int B, bool kSigned>
void multiply_bytes(EmulatedTiles& tiles) {
  alignas(64) std::int8_t a[16][64] = {};
  alignas(64) std::uint8_t b[16][64] = {};
  alignas(64) std::int32_t c[16][16] = {};
  tiles.store<A>(a, 64);
  tiles.store<B>(b, 64);
  tiles.store<C>(c, 64);
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 64; ++k) {
      for (int n = 0; n < 16; ++n) {
        const std::uint8_t code = b[k / 4][4 * n + k % 4];
        c[row][n] += a[row][k] * (kSigned ? static_cast<std::int8_t>(code) : code);
      }
    }
  }
  tiles.load<C>(c, 64);
}

// One step's codes, `n` elements of K, for both halves.
template <bool kNibble, bool kSigned>
inline void unpack_step(const std::uint8_t* codes, std::uint32_t n, std::uint8_t* to) {
  const __m512i mask = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8),
                top = _mm512_set1_epi8(static_cast<char>(0x80));
  for (std::uint32_t k = 0; k < n; k += kNibble ? 8 : 4, codes += 128) {
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      prefetch(codes + 64 * half + kInt8AheadBytes);
      const __m512i line = _mm512_loadu_si512(codes + 64 * half);
      std::uint8_t* const out = to + half * kInt8HalfBytes;
      if constexpr (kNibble) {
        const __m512i low = _mm512_and_si512(line, mask),
                      high = _mm512_and_si512(_mm512_srli_epi32(line, 4), mask);
        _mm512_storeu_si512(out, kSigned ? _mm512_sub_epi8(low, eight) : low);
        _mm512_storeu_si512(out + 64, kSigned ? _mm512_sub_epi8(high, eight) : high);
      } else {
        _mm512_storeu_si512(out, kSigned ? _mm512_xor_si512(line, top) : line);
      }
    }
    to += kNibble ? 128 : 64;
  }
}

// A slice whose products wait for their scales.
struct Int8Waiting {
  float* sums;
  const float* scales;   // of half a panel, at the stretch's first group
  const float* factors;  // of the row block, likewise
  std::uint32_t n_groups, panel, row, half;
  bool is_first, is_last;  // stretch of the panel
};

// kStepsAGroup tile steps of kStepK elements make a group.
template <int kStepsAGroup, int kStepK, bool kNibble, bool kSigned, class Tiles>
class Int8Panels {
 public:
  Int8Panels(Tiles& tiles, const Int8Job& job, Int8Scratch& scratch)
      : tiles_(tiles), job_(job), scratch_(scratch), w_(job.layout) {}

  void multiply(std::uint32_t panel_begin,
                std::uint32_t panel_end,
                std::uint32_t row_begin,
                std::uint32_t row_end) {
    row_end_ = row_end;
    if (row_end - row_begin >= kInt8TallRows)
      return multiply_tall(panel_begin, panel_end, row_begin);
    for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
      const std::uint8_t* group = job_.weight + panel * w_.panel_bytes;
      for (std::uint32_t g = 0; g < w_.n_groups; g += kGroups) {
        const std::uint32_t left = w_.n_groups - g, n = left < kGroups ? left : kGroups;
        Int8Stretch& stretch = scratch_.stretches[n_stretches_++ % 2];
        unpack(group, n, stretch);
        group += n * w_.group_bytes;
        for (std::uint32_t half = 0; half < 2; ++half)
          multiply_half(stretch, panel, g, n, half, row_begin);
      }
    }
    F32x16 sums[kInt8TileRows];
    take(waiting_, sums);
    for (std::uint32_t g = 0; g < waiting_.n_groups; ++g)
      put_scales(waiting_, g, w_.has_bias, products_before_, sums);
    put(waiting_, sums);
  }

 private:
  static constexpr std::uint32_t kGroups = kInt8Steps / kStepsAGroup;
  static constexpr std::size_t kStepBytes = std::size_t{kStepK} * 16;  // of a tile

  // ---- many rows: two stretches are unpacked, then multiplied with all of them ----

  struct TallSlice {
    const std::uint8_t *x, *codes[2];
    const float *scales[2], *factors;
    float* sums;
    bool is_first;
  };
  static constexpr int kTallGroups = 2 * static_cast<int>(kGroups),
                       kDelay = kTallGroups < 3 ? 1 : 3;

  void multiply_tall(std::uint32_t panel_begin, std::uint32_t panel_end, std::uint32_t row_begin) {
    for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
      const std::uint8_t* group = job_.weight + panel * w_.panel_bytes;
      for (std::uint32_t g = 0; g < w_.n_groups; g += 2 * kGroups) {
        const std::uint32_t left = w_.n_groups - g, n = left < 2 * kGroups ? left : 2 * kGroups;
        for (std::uint32_t i = 0; i * kGroups < n; ++i)
          unpack(group + i * kGroups * w_.group_bytes,
                 n - i * kGroups < kGroups ? n - i * kGroups : kGroups, scratch_.stretches[i]);
        group += n * w_.group_bytes;
        for (std::uint32_t row = row_begin; row < row_end_; row += kInt8TileRows)
          multiply_tall_rows(panel, g, n, row_begin, row);
      }
    }
  }

  void multiply_tall_rows(std::uint32_t panel,
                          std::uint32_t g,
                          std::uint32_t n,
                          std::uint32_t row_begin,
                          std::uint32_t row) {
    const std::size_t block = row / kInt8TileRows, x_block = kInt8TileRows * int8_row_bytes(w_),
                      factors_block = std::size_t{w_.n_groups} * kFactors * kInt8TileRows;
    for (std::uint32_t half = 0; half < 2; ++half) {
      const auto& [one, two] = scratch_.stretches;
      const TallSlice slice{
          .x = reinterpret_cast<const std::uint8_t*>(job_.v) + block * x_block +
               g * kStepsAGroup * kStepBytes,
          .codes = {one.codes[half], two.codes[half]},
          .scales = {one.scales + 16 * half, two.scales + 16 * half},
          .factors = job_.factors + block * factors_block + g * kFactors * kInt8TileRows,
          .sums = scratch_.sums + ((row - row_begin) / kInt8TileRows * 2 + half) * kInt8TileFloats,
          .is_first = g == 0};
      n == 2 * kGroups ? multiply_tall_slice<true>(slice, n) : multiply_tall_slice<false>(slice, n);
      if (g + n < w_.n_groups) continue;
      F32x16 sums[kInt8TileRows];
#pragma GCC unroll 16
      for (std::uint32_t r = 0; r < kInt8TileRows; ++r) sums[r] = load(slice.sums + 16 * r);
      Int8Waiting done = waiting_;
      done.panel = panel, done.row = row, done.half = half;
      put_outputs(done, sums);
    }
  }

  template <int G>
  inline __attribute__((always_inline)) void multiply_tall_group(const TallSlice& slice,
                                                                 std::int32_t* products) {
    constexpr int kIntegers = G % 2 == 0 ? kIntegers0 : kIntegers1;
    tiles_.template clear<kIntegers>();
    unrolled<0, kStepsAGroup>([&]<int I>() __attribute__((always_inline)) {
      constexpr int kStep = G * kStepsAGroup + I, kInStretch = kStep % int{kInt8Steps},
                    kRows = kStep % 2 == 0 ? kActivations0 : kActivations1;
      tiles_.template load<kRows>(slice.x + kStep * kStepBytes, kStepK);
      tiles_.template load<kBytes0 + kInStretch>(
          slice.codes[kStep / int{kInt8Steps}] + kInStretch * kStepBytes, 64);
      multiply_bytes<kIntegers, kRows, kBytes0 + kInStretch, kSigned>(tiles_);
    });
    tiles_.template store<kIntegers>(products + G * kInt8TileFloats, 64);
  }

  template <int G>
  static inline __attribute__((always_inline)) void put_tall_scales(const TallSlice& slice,
                                                                    bool has_bias,
                                                                    const std::int32_t* products,
                                                                    F32x16 (&sums)[kInt8TileRows]) {
    constexpr int kGroupsOfStretch = static_cast<int>(kGroups);
    const float* const scales =
        slice.scales[G / kGroupsOfStretch] + G % kGroupsOfStretch * static_cast<int>(kPanel);
    const float* const factors = slice.factors + G * kFactors * kInt8TileRows;
    const F32x16 scale = load(scales);
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r)
      sums[r] =
          fma(scale, mul(to_f32(load_u(products + G * kInt8TileFloats + 16 * r)), set1(factors[r])),
              sums[r]);
    if (!has_bias) return;
    const F32x16 bias = load(scales + kInt8Steps * kPanel);
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r)
      sums[r] = fma(bias, set1(factors[2 * kInt8TileRows + r]), sums[r]);
  }

  // kWhole: n is all of kTallGroups.
  template <bool kWhole>
  __attribute__((noinline)) void multiply_tall_slice(const TallSlice& from, std::uint32_t n) {
    const TallSlice slice = from;
    std::int32_t* const products = scratch_.products[0];
    const bool has_bias = w_.has_bias;
    F32x16 sums[kInt8TileRows];
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r)
      sums[r] = slice.is_first ? zero() : load(slice.sums + 16 * r);
    unrolled<0, kTallGroups>([&]<int G>() __attribute__((always_inline)) {
      if (kWhole || G < n) multiply_tall_group<G>(slice, products);
      if constexpr (G >= kDelay) {
        if (kWhole || G - kDelay < n) put_tall_scales<G - kDelay>(slice, has_bias, products, sums);
      }
    });
    unrolled<kTallGroups - kDelay, kTallGroups>([&]<int G>() __attribute__((always_inline)) {
      if (kWhole || G < n) put_tall_scales<G>(slice, has_bias, products, sums);
    });
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r) store(slice.sums + 16 * r, sums[r]);
  }

  // ---- few rows ----

  void unpack(const std::uint8_t* group, std::uint32_t n, Int8Stretch& to) {
    for (std::uint32_t g = 0; g < n; ++g, group += w_.group_bytes) {
      for (int h = 0; h < 2; ++h) {
        store(to.scales + g * kPanel + 16 * h, load_scales(w_.scale, group, h));
        if (w_.has_bias)
          store(to.biases + g * kPanel + 16 * h, load_scales(w_.scale, group + w_.scales_bytes, h));
      }
      const std::uint8_t* const codes = group + (w_.has_bias ? 2 : 1) * w_.scales_bytes;
      unpack_step<kNibble, kSigned>(codes, w_.group, to.codes[0] + g * kStepsAGroup * kStepBytes);
    }
  }

  void multiply_half(const Int8Stretch& stretch,
                     std::uint32_t panel,
                     std::uint32_t g,
                     std::uint32_t n,
                     std::uint32_t half,
                     std::uint32_t row_begin) {
    const std::uint8_t* const codes = stretch.codes[half];
    const std::uint32_t n_steps = n * kStepsAGroup;
    tiles_.template load<kBytes0>(codes, 64);
    if (n_steps > 1) tiles_.template load<kBytes1>(codes + kStepBytes, 64);
    if (n_steps > 2) tiles_.template load<kBytes2>(codes + 2 * kStepBytes, 64);
    if (n_steps > 3) tiles_.template load<kBytes3>(codes + 3 * kStepBytes, 64);
    const std::size_t x_block = kInt8TileRows * int8_row_bytes(w_),
                      factors_block = std::size_t{w_.n_groups} * kFactors * kInt8TileRows;
    for (std::uint32_t row = row_begin; row < row_end_; row += kInt8TileRows) {
      const std::size_t block = row / kInt8TileRows;
      const auto* const x = reinterpret_cast<const std::uint8_t*>(job_.v) + block * x_block +
                            g * kStepsAGroup * kStepBytes;
      multiply_slice(x, n);
      waiting_ = {
          .sums = scratch_.sums + ((row - row_begin) / kInt8TileRows * 2 + half) * kInt8TileFloats,
          .scales = stretch.scales + 16 * half,
          .factors = job_.factors + block * factors_block + g * kFactors * kInt8TileRows,
          .n_groups = n,
          .panel = panel,
          .row = row,
          .half = half,
          .is_first = g == 0,
          .is_last = g + n == w_.n_groups};
      std::int32_t* const last = products_;
      products_ = products_before_;
      products_before_ = last;
    }
  }

  template <int G>
  inline __attribute__((always_inline)) void multiply_group(const std::uint8_t* x,
                                                            std::int32_t* products) {
    constexpr int kIntegers = G % 2 == 0 ? kIntegers0 : kIntegers1;
    const auto step = [&]<int S>() __attribute__((always_inline)) {
      constexpr int kRows = S % 2 == 0 ? kActivations0 : kActivations1;
      tiles_.template load<kRows>(x + S * kStepBytes, kStepK);
      multiply_bytes<kIntegers, kRows, kBytes0 + S, kSigned>(tiles_);
    };
    tiles_.template clear<kIntegers>();
    step.template operator()<G * kStepsAGroup>();
    if constexpr (kStepsAGroup > 1) step.template operator()<G * kStepsAGroup + 1>();
    tiles_.template store<kIntegers>(products + G * kInt8TileFloats, 64);
  }

  // What the loop needs is taken to registers first: every tile's load or store is a border to the
  // compiler.
  __attribute__((noinline)) void multiply_slice(const std::uint8_t* x, std::uint32_t n) {
    F32x16 sums[kInt8TileRows];
    const Int8Waiting before = waiting_;
    std::int32_t* const products = products_;
    const std::int32_t* const products_before = products_before_;
    const bool has_bias = w_.has_bias;
    take(before, sums);
    const auto group = [&]<int G>() __attribute__((always_inline)) {
      if (G < n) multiply_group<G>(x, products);
      if (G < before.n_groups) put_scales(before, G, has_bias, products_before, sums);
    };
    group.template operator()<0>();
    group.template operator()<1>();
    if constexpr (kGroups > 2) {
      group.template operator()<2>();
      group.template operator()<3>();
    }
    put(before, sums);
  }

  static inline __attribute__((always_inline)) void take(const Int8Waiting& slice,
                                                         F32x16 (&sums)[kInt8TileRows]) {
    if (slice.is_first) {
#pragma GCC unroll 16
      for (std::uint32_t r = 0; r < kInt8TileRows; ++r) sums[r] = zero();
    } else {
#pragma GCC unroll 16
      for (std::uint32_t r = 0; r < kInt8TileRows; ++r) sums[r] = load(slice.sums + 16 * r);
    }
  }

  static inline __attribute__((always_inline)) void put_scales(const Int8Waiting& slice,
                                                               std::uint32_t g,
                                                               bool has_bias,
                                                               const std::int32_t* products,
                                                               F32x16 (&sums)[kInt8TileRows]) {
    const F32x16 scale = load(slice.scales + g * kPanel);
    const float* const factors = slice.factors + g * kFactors * kInt8TileRows;
    products += g * kInt8TileFloats;
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r)
      sums[r] = fma(scale, mul(to_f32(load_u(products + 16 * r)), set1(factors[r])), sums[r]);
    if (!has_bias) return;
    const F32x16 bias = load(slice.scales + kInt8Steps * kPanel + g * kPanel);
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r)
      sums[r] = fma(bias, set1(factors[2 * kInt8TileRows + r]), sums[r]);
  }

  inline __attribute__((always_inline)) void put(const Int8Waiting& slice,
                                                 const F32x16 (&sums)[kInt8TileRows]) {
    if (slice.is_last) return put_outputs(slice, sums);
#pragma GCC unroll 16
    for (std::uint32_t r = 0; r < kInt8TileRows; ++r) store(slice.sums + 16 * r, sums[r]);
  }

  __attribute__((noinline)) void put_outputs(const Int8Waiting& slice,
                                             const F32x16 (&sums)[kInt8TileRows]) {
    const std::uint32_t begin = slice.panel * kPanel + 16 * slice.half;
    if (begin >= job_.n_out) return;
    const std::uint32_t left = job_.n_out - begin, n = left < 16 ? left : 16,
                        rows_left = row_end_ - slice.row,
                        n_rows = rows_left < kInt8TileRows ? rows_left : kInt8TileRows;
    const F32x16 bias = job_.bias ? load_n(job_.bias + begin, n) : zero();
    for (std::uint32_t r = 0; r < n_rows; ++r)
      store_n(job_.out + (slice.row + r) * job_.out_stride + begin,
              job_.bias ? add(sums[r], bias) : sums[r], n);
  }

  Tiles& tiles_;
  const Int8Job& job_;
  Int8Scratch& scratch_;
  const PackedLayout& w_;
  std::uint32_t row_end_ = 0, n_stretches_ = 0;
  std::int32_t* products_ = scratch_.products[0];
  std::int32_t* products_before_ = scratch_.products[1];
  Int8Waiting waiting_{.sums = scratch_.unused,  // of no groups: nothing
                       .scales = scratch_.unused,
                       .factors = nullptr,
                       .n_groups = 0,
                       .panel = 0,
                       .row = 0,
                       .half = 0,
                       .is_first = true,
                       .is_last = false};
};
static_assert(offsetof(Int8Stretch, biases) - offsetof(Int8Stretch, scales) ==
              kInt8Steps * kPanel * sizeof(float));

template <int kStepsAGroup, int kStepK, class Tiles>
inline void int8_tiles_of(Tiles& tiles,
                          const Int8Job& job,
                          std::uint32_t panel_begin,
                          std::uint32_t panel_end,
                          std::uint32_t row_begin,
                          std::uint32_t row_end,
                          Int8Scratch& scratch) {
  const auto multiply = [&]<bool kNibble, bool kSigned>() {
    for (std::uint32_t row = row_begin; row < row_end; row += kRowChunk) {
      const std::uint32_t end = row_end - row < kRowChunk ? row_end : row + kRowChunk;
      Int8Panels<kStepsAGroup, kStepK, kNibble, kSigned, Tiles>(tiles, job, scratch)
          .multiply(panel_begin, panel_end, row, end);
    }
  };
  const PackedLayout& w = job.layout;
  if (w.code == CodeKind::nibble)
    return w.is_signed ? multiply.template operator()<true, true>()
                       : multiply.template operator()<true, false>();
  w.is_signed ? multiply.template operator()<false, true>()
              : multiply.template operator()<false, false>();
}

template <class Tiles>
void linear_int8_tiles(const Int8Job& job,
                       std::uint32_t panel_begin,
                       std::uint32_t panel_end,
                       std::uint32_t row_begin,
                       std::uint32_t row_end,
                       float* scratch) {
  const std::uint32_t group = job.layout.group, step = group < 64 ? group : 64;
  TileConfig config;
  for (int codes = kBytes0; codes <= kBytes3; ++codes) config.set(codes, step / 4, 64);
  for (int sums = kIntegers0; sums <= kIntegers1; ++sums) config.set(sums, kInt8TileRows, 64);
  for (int x = kActivations0; x <= kActivations1; ++x) config.set(x, kInt8TileRows, step);
  Tiles tiles(config);
  auto& own = *reinterpret_cast<Int8Scratch*>(scratch);
  const auto run = [&]<int kStepsAGroup, int kStepK>() {
    int8_tiles_of<kStepsAGroup, kStepK>(tiles, job, panel_begin, panel_end, row_begin, row_end,
                                        own);
  };
  if (group == 16) return run.template operator()<1, 16>();
  if (group == 32) return run.template operator()<1, 32>();
  group == 64 ? run.template operator()<1, 64>() : run.template operator()<2, 64>();
}

// Many rows as tiles: [row / 16][step][row % 16][the step's bytes of K].
void quantize_tiles(const PackedLayout& w,
                    const float* x,
                    std::size_t x_stride,
                    std::uint32_t n_rows,
                    std::uint32_t width,
                    std::uint8_t* scratch,
                    std::uint32_t* v,
                    float* factors) {
  const std::size_t row_bytes = int8_row_bytes(w), step = w.group < 64 ? w.group : 64,
                    n_steps = std::size_t{w.group} * w.n_groups / step;
  if (n_rows < kRowAlign) {
    __builtin_memset(factors, 0, sizeof(float) * kFactors * kRowAlign * w.n_groups);
    __builtin_memset(scratch, 0, kRowAlign * row_bytes);
  }
  quantize_rows(w, x, x_stride, n_rows, width, scratch, factors);
  auto* to = reinterpret_cast<std::uint8_t*>(v);
  for (std::size_t s = 0; s < n_steps; ++s) {
    for (std::size_t row = 0; row < kRowAlign; ++row, to += step)
      __builtin_memcpy(to, scratch + row * row_bytes + s * step, step);
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
