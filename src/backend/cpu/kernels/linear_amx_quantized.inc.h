// Products of quantized weights on tiles. Codes of two panels become bf16 (exact) a block of K at a
// time. 16 rows' tiles of such a block stay in registers while its codes go by, half a panel after
// the other, whose sums are in registers meanwhile. A group's products leave their tile for memory
// once the next group's are on their way, and lanes put the scale on them one group later still:
// a store that waits for its tile keeps everything behind it from starting.

namespace kvasir::backend::cpu {
namespace {

// ---- codes → bf16 pairs ----

// Codes 2 J and 2 J + 1 of each lane's eight, which lie 4 J above either half's lowest bit, as bf16
// from a table of 16, twice over: the index's bit 4 belongs to another code.
template <int J>
inline __m512i nibble_pair(__m512i codes, __m512i table) {
  return _mm512_permutexvar_epi16(J == 0 ? codes : _mm512_srli_epi32(codes, 4 * J), table);
}

template <bool kSigned>
inline __m512i nibble_table() {
  const float first = kSigned ? -8.0f : 0.0f;
  const F32x16 values = add(
      set1(first), to_f32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits(values), 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
}

// Eight elements of K for both halves of a panel; `to` is the first half's.
inline __attribute__((always_inline)) void unpack_nibbles(const std::uint8_t* codes,
                                                          std::size_t ahead,
                                                          __m512i table,
                                                          std::uint16_t* to) {
#pragma GCC unroll 2
  for (std::uint32_t half = 0; half < 2; ++half) {
    prefetch(codes + ahead + 64 * half);
    const __m512i v = _mm512_loadu_si512(codes + 64 * half);
    std::uint16_t* const out = to + half * kHalfCodes;
    _mm512_storeu_si512(out, nibble_pair<0>(v, table));
    _mm512_storeu_si512(out + 32, nibble_pair<1>(v, table));
    _mm512_storeu_si512(out + 64, nibble_pair<2>(v, table));
    _mm512_storeu_si512(out + 96, nibble_pair<3>(v, table));
  }
}

template <bool kSigned>
inline __attribute__((always_inline)) void unpack_bytes(const std::uint8_t* codes,
                                                        std::size_t ahead,
                                                        std::uint16_t* to) {
  const auto widen = [](const std::uint8_t* p) {  // integers of 8 bits: exact in the upper half
    return bits(kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p));
  };
#pragma GCC unroll 4
  for (std::uint32_t k = 0; k < 8; k += 2, codes += 2 * kPanel, to += 32) {
    prefetch(codes + ahead);
#pragma GCC unroll 2
    for (std::uint32_t half = 0; half < 2; ++half) {
      const U32x16 even = widen(codes + 16 * half), odd = widen(codes + kPanel + 16 * half);
      _mm512_storeu_si512(to + half * kHalfCodes, or_u(shift_right<16>(even), odd));
    }
  }
}

// How a panel is cut: steps of kStepK elements, kGroupSteps of them a group.
template <int kGroupStepsGiven, int kStepKGiven, CodeKind kKindGiven>
struct Cut {
  static constexpr int kGroupSteps = kGroupStepsGiven, kStepK = kStepKGiven;
  static constexpr CodeKind kKind = kKindGiven;
  static constexpr int kSteps = static_cast<int>(kBlockSteps), kGroups = kSteps / kGroupSteps;
  static constexpr int kEights = kStepK / 8;  // pieces that a step is unpacked by
  static constexpr std::size_t kTile = std::size_t{kStepK} * kTileRows;  // bf16 values
  static constexpr std::size_t kEightBytes = 8 * kPanel / (kKind == CodeKind::nibble ? 2 : 1);
};

// Some steps of one panel, or of two side by side.
struct CodeBlock {
  const std::uint8_t* groups;  // the first panel's first
  std::uint16_t* codes;        // [half][step][pair][output][2]
  float* scales;               // [panel][scales, then biases][group][output]
  std::uint32_t n_steps, n_panels;
  std::size_t ahead;  // from codes to those that are asked for, bytes

  bool is_whole() const { return n_steps == kBlockSteps; }
};

template <class C>
inline __attribute__((always_inline)) void unpack_eight(const PackedLayout& w,
                                                        const std::uint8_t* from,
                                                        std::size_t ahead,
                                                        __m512i table,
                                                        std::uint16_t* to) {
  if constexpr (C::kKind == CodeKind::nibble) {
    unpack_nibbles(from, ahead, table, to);
  } else {
    w.is_signed ? unpack_bytes<true>(from, ahead, to) : unpack_bytes<false>(from, ahead, to);
  }
}

// Where the codes of a panel's step `step` are.
template <class C>
inline __attribute__((always_inline)) const std::uint8_t* codes_of_step(const PackedLayout& w,
                                                                        const std::uint8_t* groups,
                                                                        std::uint32_t step) {
  constexpr std::uint32_t kOfGroup = C::kGroupSteps;
  const std::size_t codes_at = w.has_bias ? 2 * w.scales_bytes : w.scales_bytes;
  return groups + step / kOfGroup * w.group_bytes + codes_at +
         step % kOfGroup * C::kEights * C::kEightBytes;
}

inline void unpack_scales(const PackedLayout& w,
                          const std::uint8_t* groups,
                          std::uint32_t n_groups,
                          float* to) {
  for (std::uint32_t g = 0; g < n_groups; ++g, groups += w.group_bytes, to += kPanel) {
    for (int h = 0; h < 2; ++h) {
      store(to + 16 * h, load_scales(w.scale, groups, h));
      if (w.has_bias) store(to + kBlockSteps * kPanel + 16 * h, load_biases(w, groups, h));
    }
  }
}

inline __m512i table_of(const PackedLayout& w) {
  return w.is_signed ? nibble_table<true>() : nibble_table<false>();
}

template <class C>
__attribute__((noinline)) void unpack_block(const PackedLayout& w, const CodeBlock& block) {
  const __m512i table = table_of(w);
  for (std::uint32_t panel = 0; panel < block.n_panels; ++panel) {
    const std::uint8_t* const groups = block.groups + panel * w.panel_bytes;
    std::uint16_t* const to = block.codes + panel * std::size_t{2} * kHalfCodes;
    for (std::uint32_t step = 0; step < block.n_steps; ++step) {
      const std::uint8_t* const from = codes_of_step<C>(w, groups, step);
      for (std::uint32_t i = 0; i < C::kEights; ++i)
        unpack_eight<C>(w, from + i * C::kEightBytes, block.ahead, table,
                        to + step * C::kTile + i * 128);
    }
  }
}

// ---- rows by a block ----

enum QuantizedTile { kHeld0, kHeld1, kHeld2, kHeld3, kCodes, kProducts0, kProducts1 };

// 16 rows over a block.
struct RowsOfBlock {
  const std::uint16_t *x, *codes;
  const float* scales;          // CodeBlock's
  float* sums;                  // [half][row][output]
  const float* group_sums;      // of the first row and group, or null: no biases
  const std::uint16_t* next_x;  // what comes next, asked for
  std::size_t n_groups;         // of a row's
  __mmask16 before;             // lanes of the sums that go on: none in the panel's first block
};

constexpr int kPlacesOfProducts = 2;  // tiles, and in memory

// Products of the J-th group that comes by, of kGroups for each half.
template <class C, int J, int kN, class Tiles>
inline __attribute__((always_inline)) void store_products(Tiles& tiles, float* products) {
  if constexpr (J < 0 || J >= kN) return;
  constexpr int kFrom = kProducts0 + J % kPlacesOfProducts;
  tiles.template store<kFrom>(products + J % kPlacesOfProducts * static_cast<int>(kTileFloats),
                              kTileStride);
  tiles.template clear<kFrom>();
}

// A quarter of the rows of the J-th group's products, if it is one of kN. (GCC 12: a loop in the
// place of unrolled, or a lambda around this, and sums are no longer registers.)
template <class C, int J, int kN, int kQuarter, int R>
inline __attribute__((always_inline)) void scale_rows(const RowsOfBlock& rows,
                                                      const float* products,
                                                      F32x16 (&sums)[R]) {
  if constexpr (J < 0 || J >= kN) return;
  constexpr int kHalf = J / C::kGroups, kGroup = J % C::kGroups, kFirst = R / 4 * kQuarter;
  constexpr std::size_t kBiases = kBlockSteps * kPanel;
  const float* const scales =
      rows.scales + kHalf / 2 * 2 * kBiases + kGroup * kPanel + kHalf % 2 * 16;
  float* const half_sums = rows.sums + kHalf * kTileFloats;
  const float* const from = products + J % kPlacesOfProducts * static_cast<int>(kTileFloats);
  const F32x16 scale = load(scales);
  unrolled<kFirst, kFirst + R / 4>([&]<int r>() __attribute__((always_inline)) {
    const F32x16 sum =
        kGroup == 0 ? _mm512_maskz_loadu_ps(rows.before, half_sums + 16 * r) : sums[r];
    sums[r] = fma(scale, load(from + 16 * r), sum);
  });
  if (rows.group_sums) {
    const F32x16 bias = load(scales + kBiases);
    unrolled<kFirst, kFirst + R / 4>([&]<int r>() __attribute__((always_inline)) {
      sums[r] = fma(bias, set1(rows.group_sums[r * rows.n_groups + kGroup]), sums[r]);
    });
  }
  if constexpr (kGroup == C::kGroups - 1)
    unrolled<kFirst, kFirst + R / 4>([&]<int r>() __attribute__((always_inline)) {
      store(half_sums + 16 * r, sums[r]);
    });
}

// R rows by kHalves halves of panels. Meanwhile, if kUnpacks, the block that comes next is
// unpacked.
template <class C, int R, int kHalves, bool kUnpacks, class Tiles>
__attribute__((noinline)) void multiply_rows(Tiles& tiles,
                                             const PackedLayout& w,
                                             const RowsOfBlock& given,
                                             const CodeBlock& next_given,
                                             float* products) {
  constexpr int kN = kHalves * C::kGroups;
  const RowsOfBlock rows = given;
  const CodeBlock next = next_given;
  const __m512i table = table_of(w);
  F32x16 sums[R];
  const auto unpack = [&]<int kFrom>() __attribute__((always_inline)) {  // some of one panel
    constexpr int kOf = C::kEights / 2, kStep = kFrom * kOf / C::kEights;
    static_assert(!kUnpacks || kHalves == 2);
    const std::uint8_t* const from = codes_of_step<C>(w, next.groups, kStep);
#pragma GCC unroll 2
    for (int i = kFrom * kOf % C::kEights; i < kFrom * kOf % C::kEights + kOf; ++i)
      unpack_eight<C>(w, from + i * static_cast<int>(C::kEightBytes), next.ahead, table,
                      next.codes + kStep * static_cast<int>(C::kTile) + i * 128);
  };
  unrolled<0, C::kSteps>([&]<int S>() __attribute__((always_inline)) {
    tiles.template load<kHeld0 + S>(rows.x + S * C::kTile, C::kStepK * 2);
  });
  unrolled<0, kN + 2>([&]<int J>() __attribute__((always_inline)) {
    if constexpr (J < kN) {
      unrolled<0, C::kGroupSteps>([&]<int K>() __attribute__((always_inline)) {
        constexpr int kStep = J % C::kGroups * C::kGroupSteps + K,
                      kNth = J / C::kGroups * C::kSteps + kStep;
        tiles.template load<kCodes>(
            rows.codes + J / C::kGroups * static_cast<int>(kHalfCodes) + kStep * C::kTile,
            kTileStride);
        tiles.template multiply_bf16<kProducts0 + J % kPlacesOfProducts, kHeld0 + kStep, kCodes>();
        tiles.template clear<kCodes>();
        constexpr int kLines = C::kStepK * 2 / kHalves, kOfLine = 32;  // of x; values
#pragma GCC unroll 32
        for (int line = kNth * kLines / 4; line < (kNth + 1) * kLines / 4; ++line)
          prefetch(rows.next_x + line * kOfLine);
        if constexpr (kUnpacks) unpack.template operator()<kNth>();
        if constexpr (K == 0) store_products<C, J - 1, kN>(tiles, products);
        constexpr int kFrom = 4 * K / C::kGroupSteps, kTo = 4 * (K + 1) / C::kGroupSteps;
        unrolled<kFrom, kTo>([&]<int Q>() __attribute__((always_inline)) {
          scale_rows<C, J - 2, kN, Q, R>(rows, products, sums);
        });
      });
    } else {
      store_products<C, J - 1, kN>(tiles, products);
      unrolled<0, 4>([&]<int Q>() __attribute__((always_inline)) {
        scale_rows<C, J - 2, kN, Q, R>(rows, products, sums);
      });
    }
  });
}

// A half over a block that the panel's end cuts short.
template <class C, class Tiles>
__attribute__((noinline)) void multiply_short_half(Tiles& tiles,
                                                   const RowsOfBlock& rows,
                                                   std::uint32_t half,
                                                   std::uint32_t n_steps,
                                                   float* products) {
  constexpr std::size_t kBiases = kBlockSteps * kPanel;
  const std::uint16_t* const codes = rows.codes + half * kHalfCodes;
  const float* scales = rows.scales + half / 2 * 2 * kBiases + half % 2 * 16;
  float* const sums = rows.sums + half * kTileFloats;
  for (std::size_t r = 0; r < kTileRows; ++r)
    store(sums + 16 * r, _mm512_maskz_loadu_ps(rows.before, sums + 16 * r));
  for (std::uint32_t step = 0; step < n_steps; scales += kPanel) {
    const std::uint32_t group = step / C::kGroupSteps;
    for (int i = 0; i < C::kGroupSteps; ++i, ++step) {
      tiles.template load<kHeld0>(rows.x + step * C::kTile, C::kStepK * 2);
      tiles.template load<kCodes>(codes + step * C::kTile, kTileStride);
      tiles.template multiply_bf16<kProducts0, kHeld0, kCodes>();
    }
    tiles.template store<kProducts0>(products, kTileStride);
    tiles.template clear<kProducts0>();
    for (std::size_t r = 0; r < kTileRows; ++r) {
      F32x16 sum = fma(load(scales), load(products + 16 * r), load(sums + 16 * r));
      if (rows.group_sums)
        sum = fma(load(scales + kBiases), set1(rows.group_sums[r * rows.n_groups + group]), sum);
      store(sums + 16 * r, sum);
    }
  }
}

// ---- panels ----

template <class C, class Tiles>
class QuantizedPanels {
 public:
  QuantizedPanels(Tiles& tiles, const TileJob& t)
      : tiles_(tiles),
        t_(t),
        w_(t.job.layout),
        n_steps_(w_.n_groups * C::kGroupSteps),
        a_panel_((n_steps_ + kBlockSteps - 1) / kBlockSteps),
        together_(t.n_row_blocks() == 1 ? 1 : kPanelsTogether) {}

  // A lone block of rows is multiplied while the codes that come next are unpacked, of one panel,
  // so that all fits in L1; more are after it.
  void multiply() {
    const std::uint32_t n = (t_.panel_end - t_.panel_begin + together_ - 1) / together_ * a_panel_;
    CodeBlock now = block(0);
    unpack_block<C>(w_, now);
    for (std::uint32_t i = 0; i < n; ++i) {
      const CodeBlock next = i + 1 < n ? block(i + 1) : CodeBlock{};
      const bool unpacks = is_lone() && now.is_whole() && next.is_whole();
      for (std::uint32_t row_block = 0; row_block < t_.n_row_blocks(); ++row_block) {
        unpacks ? multiply_and_unpack(rows(i, now, row_block), next)
                : multiply_block(rows(i, now, row_block), now);
        if ((i + 1) % a_panel_ == 0) put_rows(row_block, panel_of(i), now.n_panels);
      }
      if (i + 1 < n && !unpacks) unpack_block<C>(w_, next);
      now = next;
    }
  }

 private:
  std::uint32_t panel_of(std::uint32_t i) const {
    return t_.panel_begin + i / a_panel_ * together_;
  }
  bool is_lone() const { return t_.n_row_blocks() == 1; }
  float* sums(std::uint32_t row_block) const {
    return t_.scratch.sums + row_block * std::size_t{2 * kPanelsTogether} * kTileFloats;
  }

  // The i-th block's places, its scales already unpacked.
  CodeBlock block(std::uint32_t i) const {
    const std::uint32_t in_panel = i % a_panel_, left = n_steps_ - in_panel * kBlockSteps,
                        panels_left = t_.panel_end - panel_of(i);
    const std::size_t at = in_panel * std::size_t{C::kGroups} * w_.group_bytes;
    const bool ends = at + kCodesAheadBytes >= w_.panel_bytes;
    const CodeBlock out{.groups = t_.job.weight + panel_of(i) * w_.panel_bytes + at,
                        .codes = t_.scratch.codes[i % 2],
                        .scales = t_.scratch.scales[i % 2],
                        .n_steps = left < kBlockSteps ? left : kBlockSteps,
                        .n_panels = panels_left < together_ ? panels_left : together_,
                        .ahead = kCodesAheadBytes + (ends ? (together_ - 1) * w_.panel_bytes : 0)};
    for (std::uint32_t panel = 0; panel < out.n_panels; ++panel)
      unpack_scales(w_, out.groups + panel * w_.panel_bytes, out.n_steps / C::kGroupSteps,
                    out.scales + panel * std::size_t{2} * kBlockSteps * kPanel);
    return out;
  }

  RowsOfBlock rows(std::uint32_t i, const CodeBlock& block, std::uint32_t row_block) const {
    const LinearJob& job = t_.job;
    const std::uint32_t in_panel = i % a_panel_, row = t_.row_begin + row_block * kTileRows;
    const std::size_t x_stride = n_steps_ * C::kTile;  // of a row block
    const std::uint16_t* const x =
        job.x_tiles + row / kTileRows * x_stride + in_panel * kBlockSteps * C::kTile;
    return {.x = x,
            .codes = block.codes,
            .scales = block.scales,
            .sums = sums(row_block),
            .group_sums = w_.has_bias ? job.group_sums + std::size_t{row} * w_.n_groups +
                                            in_panel * C::kGroups
                                      : nullptr,
            .next_x = x + (is_lone() ? kBlockSteps * C::kTile : x_stride),
            .n_groups = w_.n_groups,
            .before = static_cast<__mmask16>(in_panel == 0 ? 0 : 0xffff)};
  }

  void multiply_and_unpack(const RowsOfBlock& rows, const CodeBlock& next) {
    float* const products = t_.scratch.products;
    t_.row_end - t_.row_begin <= 8
        ? multiply_rows<C, 8, 2, true>(tiles_, w_, rows, next, products)
        : multiply_rows<C, 16, 2, true>(tiles_, w_, rows, next, products);
  }
  void multiply_block(const RowsOfBlock& rows, const CodeBlock& block) {
    float* const products = t_.scratch.products;
    if (block.n_steps == kBlockSteps)
      return block.n_panels == 1 ? multiply_rows<C, 16, 2, false>(tiles_, w_, rows, {}, products)
                                 : multiply_rows<C, 16, 4, false>(tiles_, w_, rows, {}, products);
    for (std::uint32_t half = 0; half < 2 * block.n_panels; ++half)
      multiply_short_half<C>(tiles_, rows, half, block.n_steps, products);
  }

  void put_rows(std::uint32_t row_block, std::uint32_t panel, std::uint32_t n_panels) const {
    const std::uint32_t row = t_.row_begin + row_block * kTileRows, left = t_.row_end - row,
                        n = left < kTileRows ? left : kTileRows;
    for (std::uint32_t r = 0; r < n; ++r) {
      for (std::uint32_t half = 0; half < 2 * n_panels; ++half)
        put_outputs(t_.job, panel * kPanel + 16 * half, row + r, t_.stream,
                    load(sums(row_block) + half * kTileFloats + 16 * r));
    }
  }

  Tiles& tiles_;
  const TileJob& t_;
  const PackedLayout& w_;
  std::uint32_t n_steps_, a_panel_, together_;
};

template <int kGroupSteps, int kStepK, class Tiles>
inline void quantized_rows(Tiles& tiles, const TileJob& t) {
  if (t.job.layout.code == CodeKind::nibble)
    return QuantizedPanels<Cut<kGroupSteps, kStepK, CodeKind::nibble>, Tiles>(tiles, t).multiply();
  QuantizedPanels<Cut<kGroupSteps, kStepK, CodeKind::byte>, Tiles>(tiles, t).multiply();
}

}  // namespace
}  // namespace kvasir::backend::cpu
