// Products of quantized weights on tiles. A panel's codes become bf16 (exact) a block of K at a
// time, while the block before is multiplied; a slice, 16 rows by half a panel over a block, keeps
// its sums in registers. A group's products leave their tile for memory, and lanes put its scale on
// them some steps later, so that tiles, lanes and memory seldom wait for each other.

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
                                                          __m512i table,
                                                          std::uint16_t* to) {
#pragma GCC unroll 2
  for (std::uint32_t half = 0; half < 2; ++half) {
    prefetch(codes + kCodesAheadBytes + 64 * half);
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
                                                        std::uint16_t* to) {
  const auto widen = [](const std::uint8_t* p) {  // integers of 8 bits: exact in the upper half
    return bits(kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p));
  };
#pragma GCC unroll 4
  for (std::uint32_t k = 0; k < 8; k += 2, codes += 2 * kPanel, to += 32) {
    prefetch(codes + kCodesAheadBytes);
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
  static constexpr int kEights = kStepK / 8;               // pieces that a step is unpacked by
  static constexpr int kDelay = kGroupSteps == 1 ? 2 : 1;  // groups between product and scale
  static constexpr std::size_t kTile = std::size_t{kStepK} * kTileRows;  // bf16 values
  static constexpr std::size_t kEightBytes = 8 * kPanel / (kKind == CodeKind::nibble ? 2 : 1);
};

// A block on its way from codes to bf16: step `step` is next.
struct Unpacking {
  const std::uint8_t* groups;  // the block's first
  std::uint16_t* codes;
  float* scales;
  std::uint32_t step, n_steps;
};

template <class C>
inline __attribute__((always_inline)) void unpack_eight(const PackedLayout& w,
                                                        const std::uint8_t* from,
                                                        __m512i table,
                                                        std::uint16_t* to) {
  if constexpr (C::kKind == CodeKind::nibble) {
    unpack_nibbles(from, table, to);
  } else {
    w.is_signed ? unpack_bytes<true>(from, to) : unpack_bytes<false>(from, to);
  }
}

// Where the codes of the block's step `step` are.
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
      if (w.has_bias)
        store(to + kBlockSteps * kPanel + 16 * h, load_scales(w.scale, groups + w.scales_bytes, h));
    }
  }
}

inline __m512i table_of(const PackedLayout& w) {
  return w.is_signed ? nibble_table<true>() : nibble_table<false>();
}

// What is left of it.
template <class C>
inline __attribute__((noinline)) void unpack_rest(const PackedLayout& w, Unpacking& block) {
  const __m512i table = table_of(w);
  for (; block.step < block.n_steps; ++block.step) {
    const std::uint8_t* const from = codes_of_step<C>(w, block.groups, block.step);
    for (std::uint32_t i = 0; i < C::kEights; ++i)
      unpack_eight<C>(w, from + i * C::kEightBytes, table,
                      block.codes + block.step * C::kTile + i * 128);
  }
}

// ---- slices ----

enum QuantizedTile {
  kProducts0,
  kProducts1,
  kSliceRows0,
  kSliceRows1,
  kCodes0,
  kCodes1,
  kCodes2,
  kCodes3
};

// 16 rows by half a panel over a block.
struct Slice {
  const std::uint16_t *x, *codes;
  const float* scales;  // [group][kPanel], of the half; biases kBlockSteps * kPanel further on
  float* sums;
  const float* group_sums;      // of the first row and group, or null: no biases
  const std::uint16_t* next_x;  // asked for, half of a slice's
  std::uint32_t n_steps;
  bool is_first;     // of the panel's blocks
  bool takes_codes;  // into their tiles, where the slice before left others
};

// Where a group's products lie: as far from a page's begin as its last tile of rows. Processors
// compare addresses within 4 KB first, and take a load for one that awaits a store to another page;
// so the store it may have to wait for is an old one.
template <class C>
constexpr std::size_t place_of(int g) {
  return static_cast<std::size_t>((g + 1) * C::kGroupSteps - 1) * kTileFloats;
}

template <class C, int G, int R>
inline __attribute__((always_inline)) void scale_group(const Slice& slice,
                                                       std::size_t n_groups,
                                                       const float* products,
                                                       F32x16 (&sums)[R]) {
  const F32x16 scale = load(slice.scales + G * static_cast<int>(kPanel));
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    sums[r] = fma(scale, load(products + place_of<C>(G) + 16 * r), sums[r]);
  if (!slice.group_sums) return;
  const F32x16 bias =
      load(slice.scales + (static_cast<int>(kBlockSteps) + G) * static_cast<int>(kPanel));
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    sums[r] =
        fma(bias, set1(slice.group_sums[static_cast<std::size_t>(r) * n_groups + G]), sums[r]);
}

template <class C, int S, class Tiles>
inline __attribute__((always_inline)) void multiply_step(Tiles& tiles,
                                                         const Slice& slice,
                                                         float* products) {
  constexpr int kGroup = S / C::kGroupSteps, kProducts = kProducts0 + kGroup % 2;
  constexpr int kRows = kSliceRows0 + S % 2, kCodes = kCodes0 + S;
  tiles.template load<kRows>(slice.x + S * C::kTile, C::kStepK * 2);
  if (slice.takes_codes) tiles.template load<kCodes>(slice.codes + S * C::kTile, kTileStride);
  if constexpr (S % C::kGroupSteps == 0) tiles.template clear<kProducts>();
  tiles.template multiply_bf16<kProducts, kRows, kCodes>();
  if constexpr (S % C::kGroupSteps == C::kGroupSteps - 1)
    tiles.template store<kProducts>(products + place_of<C>(kGroup), kTileStride);
}

// A whole slice of R rows; meanwhile Q pieces a step of the next block are unpacked.
template <class C, int R, int Q, class Tiles>
__attribute__((noinline)) void multiply_slice(
    Tiles& tiles, const PackedLayout& w, const Slice& from, Unpacking& unpacking, float* products) {
  const Slice slice = from;
  const Unpacking block = unpacking;
  const std::size_t n_groups = w.n_groups;
  const __m512i table = table_of(w);
  F32x16 sums[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r] = slice.is_first ? zero() : load(slice.sums + 16 * r);
  const std::uint8_t* codes = nullptr;
  const auto step = [&]<int S>() __attribute__((always_inline)) {
    multiply_step<C, S>(tiles, slice, products);
#pragma GCC unroll 4
    for (int piece = 0; piece < Q; ++piece) {
      const int at = S * Q + piece, in_step = at % C::kEights;
      const std::uint32_t next = block.step + static_cast<std::uint32_t>(at / C::kEights);
      if (next >= block.n_steps) continue;
      if (in_step == 0) codes = codes_of_step<C>(w, block.groups, next);
      unpack_eight<C>(w, codes + in_step * static_cast<int>(C::kEightBytes), table,
                      block.codes + next * C::kTile + in_step * 128);
    }
#pragma GCC unroll 8
    for (int line = 0; line < C::kStepK / 4; ++line)
      prefetch(slice.next_x + (S * C::kStepK / 4 + line) * 32);
    constexpr int kDone = (S + 1) / C::kGroupSteps - 1 - C::kDelay;  // the group whose turn it is
    if constexpr (kDone >= 0 && (S + 1) % C::kGroupSteps == 0)
      scale_group<C, kDone, R>(slice, n_groups, products, sums);
  };
  unrolled<0, C::kSteps>(step);
  unrolled<C::kGroups - C::kDelay, C::kGroups>([&]<int G>() __attribute__((always_inline)) {
    scale_group<C, G, R>(slice, n_groups, products, sums);
  });
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) store(slice.sums + 16 * r, sums[r]);
  unpacking.step += static_cast<std::uint32_t>(C::kSteps * Q / C::kEights);
  if (unpacking.step > unpacking.n_steps) unpacking.step = unpacking.n_steps;
}

// Two blocks' steps of one slice, all of them unpacked: codes wait in L1, so that each step's tile
// is loaded for each product, and the sums' way to memory and back is shared by twice as many.
struct LongSlice {
  const std::uint16_t *x, *codes[2];
  const float* scales[2];  // as Slice's
  float* sums;
  const float* group_sums;
  bool is_first;
};

// Of group g: as place_of, and another one than those of the groups that are not scaled yet.
template <class C>
constexpr std::size_t long_place_of(int g) {
  return place_of<C>(C::kGroupSteps == 4 ? 0 : g % C::kGroups) -
         (C::kGroupSteps == 4 && g % 2 == 1 ? 2 * kTileFloats : 0);
}

template <class C, int G, int R>
inline __attribute__((always_inline)) void scale_long_group(const LongSlice& slice,
                                                            std::size_t n_groups,
                                                            const float* products,
                                                            F32x16 (&sums)[R]) {
  constexpr int kBlock = G / C::kGroups, kInBlock = G % C::kGroups;
  const float* const scales = slice.scales[kBlock] + kInBlock * static_cast<int>(kPanel);
  const F32x16 scale = load(scales);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    sums[r] = fma(scale, load(products + long_place_of<C>(G) + 16 * r), sums[r]);
  if (!slice.group_sums) return;
  const F32x16 bias = load(scales + kBlockSteps * kPanel);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    sums[r] =
        fma(bias, set1(slice.group_sums[static_cast<std::size_t>(r) * n_groups + G]), sums[r]);
}

template <class C, int S, class Tiles>
inline __attribute__((always_inline)) void multiply_long_step(Tiles& tiles,
                                                              const LongSlice& slice,
                                                              float* products) {
  constexpr int kGroup = S / C::kGroupSteps, kProducts = kProducts0 + kGroup % 2;
  constexpr int kRows = kSliceRows0 + S % 2, kCodes = kCodes0 + S % 4;
  tiles.template load<kRows>(slice.x + S * C::kTile, C::kStepK * 2);
  tiles.template load<kCodes>(slice.codes[S / C::kSteps] + S % C::kSteps * C::kTile, kTileStride);
  if constexpr (S % C::kGroupSteps == 0) tiles.template clear<kProducts>();
  tiles.template multiply_bf16<kProducts, kRows, kCodes>();
  if constexpr (S % C::kGroupSteps == C::kGroupSteps - 1)
    tiles.template store<kProducts>(products + long_place_of<C>(kGroup), kTileStride);
}

template <class C, class Tiles>
__attribute__((noinline)) void multiply_long_slice(Tiles& tiles,
                                                   std::size_t n_groups,
                                                   const LongSlice& from,
                                                   float* products) {
  constexpr int kRows = static_cast<int>(kTileRows), kGroups = 2 * C::kGroups;
  constexpr int kDelay = C::kGroupSteps == 1 ? 3 : 1;
  const LongSlice slice = from;
  F32x16 sums[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sums[r] = slice.is_first ? zero() : load(slice.sums + 16 * r);
  const auto step = [&]<int S>() __attribute__((always_inline)) {
    multiply_long_step<C, S>(tiles, slice, products);
    constexpr int kDone = (S + 1) / C::kGroupSteps - 1 - kDelay;  // the group whose turn it is
    if constexpr (kDone >= 0 && (S + 1) % C::kGroupSteps == 0)
      scale_long_group<C, kDone, kRows>(slice, n_groups, products, sums);
  };
  unrolled<0, 2 * C::kSteps>(step);
  unrolled<kGroups - kDelay, kGroups>([&]<int G>() __attribute__((always_inline)) {
    scale_long_group<C, G, kRows>(slice, n_groups, products, sums);
  });
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store(slice.sums + 16 * r, sums[r]);
}

// One that the panel's end cuts short.
template <class C, class Tiles>
__attribute__((noinline)) void multiply_short_slice(Tiles& tiles,
                                                    const PackedLayout& w,
                                                    const Slice& slice,
                                                    float* products) {
  constexpr int kRows = static_cast<int>(kTileRows);
  F32x16 sums[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sums[r] = slice.is_first ? zero() : load(slice.sums + 16 * r);
  unrolled<0, C::kSteps>([&]<int S>() __attribute__((always_inline)) {
    if (S < slice.n_steps) {
      multiply_step<C, S>(tiles, slice, products);
      if constexpr ((S + 1) % C::kGroupSteps == 0)
        scale_group<C, S / C::kGroupSteps, kRows>(slice, w.n_groups, products, sums);
    }
  });
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store(slice.sums + 16 * r, sums[r]);
}

// ---- panels ----

template <class C, class Tiles>
class QuantizedPanels {
 public:
  QuantizedPanels(Tiles& tiles, const TileJob& t)
      : tiles_(tiles),
        t_(t),
        w_(t.job.layout),
        n_row_blocks_(t.n_row_blocks()),
        n_steps_(w_.n_groups * C::kGroupSteps),
        a_panel_((n_steps_ + kBlockSteps - 1) / kBlockSteps) {}

  void multiply() {
    if (n_row_blocks_ >= kTallBlocks) return multiply_tall();
    const std::uint32_t n = (t_.panel_end - t_.panel_begin) * a_panel_;
    Unpacking ahead = block(0);
    unpack_rest<C>(w_, ahead);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (i + 1 < n) ahead = block(i + 1);
      multiply_block(i, ahead);
      unpack_rest<C>(w_, ahead);
    }
  }

 private:
  static constexpr std::size_t kXBlock = kBlockSteps * C::kTile;

  // Many rows: two blocks are unpacked, then multiplied with all of them.
  void multiply_tall() {
    const std::uint32_t n_whole = n_steps_ / kBlockSteps;
    for (std::uint32_t panel = t_.panel_begin; panel < t_.panel_end; ++panel) {
      const std::uint32_t first = (panel - t_.panel_begin) * a_panel_;
      for (std::uint32_t b = 0; b < a_panel_;) {
        const std::uint32_t n = b + 2 <= n_whole ? 2 : 1;
        for (std::uint32_t i = 0; i < n; ++i) {
          Unpacking unpacking = block(first + b + i);
          unpack_rest<C>(w_, unpacking);
        }
        for (std::uint32_t row_block = 0; row_block < n_row_blocks_; ++row_block) {
          n == 2 ? multiply_long(first + b, row_block) : multiply_lone(first + b, row_block);
          if (b + n == a_panel_) put_rows(row_block, panel);
        }
        b += n;
      }
    }
  }
  void multiply_long(std::uint32_t i, std::uint32_t row_block) {
    for (std::uint32_t half = 0; half < 2; ++half) {
      const Slice one = slice(i, row_block, half, true), two = slice(i + 1, row_block, half, true);
      multiply_long_slice<C>(tiles_, w_.n_groups,
                             {.x = one.x,
                              .codes = {one.codes, two.codes},
                              .scales = {one.scales, two.scales},
                              .sums = one.sums,
                              .group_sums = one.group_sums,
                              .is_first = one.is_first},
                             t_.scratch.products);
    }
  }
  void multiply_lone(std::uint32_t i, std::uint32_t row_block) {
    Unpacking none{nullptr, nullptr, nullptr, 0, 0};
    for (std::uint32_t half = 0; half < 2; ++half)
      multiply_half(slice(i, row_block, half, true), none);
  }

  // The block's place in memory, its scales already unpacked.
  Unpacking block(std::uint32_t i) {
    const std::uint32_t in_panel = i % a_panel_, left = n_steps_ - in_panel * kBlockSteps;
    const std::uint8_t* const groups = t_.job.weight +
                                       (t_.panel_begin + i / a_panel_) * w_.panel_bytes +
                                       in_panel * std::size_t{C::kGroups} * w_.group_bytes;
    const Unpacking out{groups, t_.scratch.codes[i % 2], t_.scratch.scales[i % 2], 0,
                        left < kBlockSteps ? left : kBlockSteps};
    unpack_scales(w_, groups, out.n_steps / C::kGroupSteps, out.scales);
    return out;
  }

  // Codes stay in their tiles, and rows in L1, for a run of row blocks.
  void multiply_block(std::uint32_t i, Unpacking& ahead) {
    const std::uint32_t in_panel = i % a_panel_, panel = t_.panel_begin + i / a_panel_;
    for (std::uint32_t begin = 0; begin < n_row_blocks_; begin += kRunBlocks) {
      const std::uint32_t left = n_row_blocks_ - begin,
                          end = left < kRunBlocks ? n_row_blocks_ : begin + kRunBlocks;
      for (std::uint32_t half = 0; half < 2; ++half) {
        for (std::uint32_t row_block = begin; row_block < end; ++row_block)
          multiply_half(slice(i, row_block, half, row_block == begin), ahead);
      }
      for (std::uint32_t row_block = begin; row_block < end && in_panel + 1 == a_panel_;
           ++row_block)
        put_rows(row_block, panel);
    }
  }

  Slice slice(std::uint32_t i, std::uint32_t row_block, std::uint32_t half, bool takes_codes) {
    const LinearJob& job = t_.job;
    const std::uint32_t in_panel = i % a_panel_, left = n_steps_ - in_panel * kBlockSteps,
                        row = t_.row_begin + row_block * kTileRows,
                        next = row_block + kRunBlocks;  // which comes a run later, or a block
    const std::size_t x_stride = n_steps_ * C::kTile;
    const std::uint16_t* const x =
        job.x_tiles + t_.row_begin / kTileRows * x_stride + in_panel * kXBlock;
    const std::uint16_t* const next_x = next < n_row_blocks_
                                            ? x + next * x_stride
                                            : x + row_block % kRunBlocks * x_stride + kXBlock;
    return {.x = x + row_block * x_stride,
            .codes = t_.scratch.codes[i % 2] + half * kHalfCodes,
            .scales = t_.scratch.scales[i % 2] + 16 * half,
            .sums = t_.sums(row_block) + half * kTileFloats,
            .group_sums = w_.has_bias ? job.group_sums + std::size_t{row} * w_.n_groups +
                                            in_panel * C::kGroups
                                      : nullptr,
            .next_x = next_x + half * kXBlock / 2,
            .n_steps = left < kBlockSteps ? left : kBlockSteps,
            .is_first = in_panel == 0,
            .takes_codes = takes_codes};
  }

  // One row block must unpack the next block while it multiplies, more can take their time.
  void multiply_half(const Slice& slice, Unpacking& ahead) {
    float* const products = t_.scratch.products;
    if (slice.n_steps < kBlockSteps) return multiply_short_slice<C>(tiles_, w_, slice, products);
    if (ahead.step >= ahead.n_steps)
      return multiply_slice<C, 16, 0>(tiles_, w_, slice, ahead, products);
    if (n_row_blocks_ > 1) return multiply_slice<C, 16, 1>(tiles_, w_, slice, ahead, products);
    t_.row_end - t_.row_begin <= 8 ? multiply_slice<C, 8, 2>(tiles_, w_, slice, ahead, products)
                                   : multiply_slice<C, 16, 2>(tiles_, w_, slice, ahead, products);
  }

  void put_rows(std::uint32_t row_block, std::uint32_t panel) {
    const std::uint32_t row = t_.row_begin + row_block * kTileRows, left = t_.row_end - row,
                        n = left < kTileRows ? left : kTileRows;
    const float* const sums = t_.sums(row_block);
    for (std::uint32_t r = 0; r < n; ++r) {
      put_outputs(t_.job, panel * kPanel, row + r, t_.stream, load(sums + 16 * r));
      put_outputs(t_.job, panel * kPanel + 16, row + r, t_.stream,
                  load(sums + kTileFloats + 16 * r));
    }
  }

  Tiles& tiles_;
  const TileJob& t_;
  const PackedLayout& w_;
  std::uint32_t n_row_blocks_, n_steps_, a_panel_;
};

template <int kGroupSteps, int kStepK, class Tiles>
inline void quantized_rows(Tiles& tiles, const TileJob& t) {
  if (t.job.layout.code == CodeKind::nibble)
    return QuantizedPanels<Cut<kGroupSteps, kStepK, CodeKind::nibble>, Tiles>(tiles, t).multiply();
  QuantizedPanels<Cut<kGroupSteps, kStepK, CodeKind::byte>, Tiles>(tiles, t).multiply();
}

}  // namespace
}  // namespace kvasir::backend::cpu
