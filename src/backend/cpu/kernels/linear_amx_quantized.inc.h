// Products of quantized weights on tiles, slice by slice: 16 rows by half a panel over a stretch of
// kStretchSteps steps, whose codes, made bf16 (exact), stay in tiles for a run of row blocks. A
// group's products leave their tile for memory and have their scales put on by lanes one slice
// later, and codes are unpacked some stretches ahead, so that tiles, lanes and memory seldom wait
// for each other.

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

// A step's codes for both halves of a panel; `to` is the first half's.
template <bool kSigned>
inline void unpack_nibbles(const std::uint8_t* codes, std::uint32_t step, std::uint16_t* to) {
  const __m512i table = nibble_table<kSigned>();
  for (std::uint32_t k = 0; k < step; k += 8, codes += 128, to += 128) {
    prefetch(codes + kCodesAheadBytes);
    prefetch(codes + kCodesAheadBytes + 64);
#pragma GCC unroll 2
    for (std::uint32_t half = 0; half < 2; ++half) {
      const __m512i v = _mm512_loadu_si512(codes + 64 * half);
      std::uint16_t* const out = to + half * kStretchHalves;
      _mm512_storeu_si512(out, nibble_pair<0>(v, table));
      _mm512_storeu_si512(out + 32, nibble_pair<1>(v, table));
      _mm512_storeu_si512(out + 64, nibble_pair<2>(v, table));
      _mm512_storeu_si512(out + 96, nibble_pair<3>(v, table));
    }
  }
}

template <bool kSigned>
inline void unpack_bytes(const std::uint8_t* codes, std::uint32_t step, std::uint16_t* to) {
  const auto widen = [](const std::uint8_t* p) {  // integers of 8 bits: exact in the upper half
    return bits(kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p));
  };
  for (std::uint32_t k = 0; k < step; k += 2, codes += 2 * kPanel, to += 32) {
    prefetch(codes + kCodesAheadBytes);
#pragma GCC unroll 2
    for (std::uint32_t half = 0; half < 2; ++half) {
      const U32x16 even = widen(codes + 16 * half), odd = widen(codes + kPanel + 16 * half);
      _mm512_storeu_si512(to + half * kStretchHalves, or_u(shift_right<16>(even), odd));
    }
  }
}

inline void unpack_step(const PackedLayout& w,
                        const std::uint8_t* codes,
                        std::uint32_t step,
                        std::uint16_t* to) {
  if (w.code == CodeKind::nibble)
    return w.is_signed ? unpack_nibbles<true>(codes, step, to)
                       : unpack_nibbles<false>(codes, step, to);
  return w.is_signed ? unpack_bytes<true>(codes, step, to) : unpack_bytes<false>(codes, step, to);
}

// ---- quantized weights ----

// Panels [panel_begin, panel_end) as one sequence of stretches, which are unpacked up to `ahead`
// before they are used, into `slots` places in turn. A panel's last may be short.
class StretchStream {
 public:
  StretchStream(const LinearJob& job,
                std::uint32_t panel_begin,
                std::uint32_t panel_end,
                std::uint32_t ahead,
                std::uint32_t slots,
                AmxScratch& scratch)
      : w_(job.layout),
        first_(job.weight + panel_begin * w_.panel_bytes),
        step_(w_.group < kStep ? w_.group : kStep),
        steps_a_group_(w_.group / step_),
        n_steps_(steps_a_group_ * w_.n_groups),
        a_panel_((n_steps_ + kStretchSteps - 1) / kStretchSteps),
        n_((panel_end - panel_begin) * a_panel_),
        slots_(slots),
        scratch_(scratch) {
    while (stretch_ < ahead && stretch_ < n_) unpack_more();
  }

  std::uint32_t size() const { return n_; }
  std::uint32_t a_panel() const { return a_panel_; }
  std::uint32_t step() const { return step_; }
  std::uint32_t steps_a_panel() const { return n_steps_; }
  std::uint32_t steps_of(std::uint32_t stretch) const {
    const std::uint32_t left = n_steps_ - stretch % a_panel_ * kStretchSteps;
    return left < kStretchSteps ? left : kStretchSteps;
  }
  const AmxStretch& at(std::uint32_t stretch) const { return scratch_.stretches[stretch % slots_]; }

  // Half a stretch more, if it is before `end`.
  void unpack_until(std::uint32_t end) {
    if (stretch_ < end && stretch_ < n_) unpack_more();
  }

 private:
  void unpack_more() {
    const std::uint32_t n = steps_of(stretch_), until = next_step_ + kStretchSteps / 2;
    AmxStretch& to = scratch_.stretches[stretch_ % slots_];
    for (; next_step_ < until && next_step_ < n; ++next_step_) unpack(next_step_, to);
    if (next_step_ < n) return;
    next_step_ = 0;
    ++stretch_;
  }
  void unpack(std::uint32_t step, AmxStretch& to) {
    const std::size_t panel = stretch_ / a_panel_;
    const std::uint32_t in_panel = stretch_ % a_panel_ * kStretchSteps + step,
                        in_group = in_panel % steps_a_group_, g = step / steps_a_group_;
    const std::uint8_t* const group =
        first_ + panel * w_.panel_bytes + in_panel / steps_a_group_ * w_.group_bytes;
    const std::size_t codes_at = w_.has_bias ? 2 * w_.scales_bytes : w_.scales_bytes;
    if (in_group == 0) {
      for (int h = 0; h < 2; ++h) {
        store(to.scales + g * kPanel + 16 * h, load_scales(w_.scale, group, h));
        if (w_.has_bias)
          store(to.biases + g * kPanel + 16 * h, load_scales(w_.scale, group + w_.scales_bytes, h));
      }
    }
    const std::size_t step_bytes =
        std::size_t{step_} * kPanel / (w_.code == CodeKind::byte ? 1 : 2);
    unpack_step(w_, group + codes_at + in_group * step_bytes, step_,
                to.codes + std::size_t{step} * step_ * 16);
  }

  const PackedLayout& w_;
  const std::uint8_t* first_;
  std::uint32_t step_, steps_a_group_, n_steps_, a_panel_, n_, slots_;
  AmxScratch& scratch_;
  std::uint32_t stretch_ = 0, next_step_ = 0;  // what comes next
};

enum QuantizedTile {
  kCodes0,
  kCodes1,
  kCodes2,
  kCodes3,
  kProducts0,
  kProducts1,
  kSliceRows0,
  kSliceRows1
};

// The slice (16 rows by half a panel over a stretch) whose products are in memory, its scales not
// yet put on.
struct Waiting {
  float* sums;
  const float* scales;  // [group][kPanel], of the half; biases kStretchSteps * kPanel further on
  const float* group_sums;  // of the first row and group
  std::uint32_t n_groups, panel;
  bool is_first, is_last;  // of the panel's stretches
};

// Where a group's products lie: as far from a page's begin as its last tile of rows. Processors
// compare addresses within 4 KB first, and take a load for one that awaits a store to another page;
// so the store it may have to wait for is an old one.
template <int kStepsAGroup>
constexpr std::size_t place_of(int g) {
  return static_cast<std::size_t>((g + 1) * kStepsAGroup - 1) * kTileFloats;
}

template <int kStepsAGroup, int G, int R>
inline __attribute__((always_inline)) void scale_group(const Waiting& slice,
                                                       bool has_bias,
                                                       std::size_t n_groups,
                                                       const float* products,
                                                       F32x16 (&sums)[R]) {
  const F32x16 scale = load(slice.scales + G * kPanel);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    sums[r] = fma(scale, load(products + place_of<kStepsAGroup>(G) + 16 * r), sums[r]);
  if (!has_bias) return;
  const F32x16 bias = load(slice.scales + (kStretchSteps + G) * kPanel);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    sums[r] =
        fma(bias, set1(slice.group_sums[static_cast<std::size_t>(r) * n_groups + G]), sums[r]);
}

template <int kStepsAGroup, int G, int kStepK, class Tiles>
inline __attribute__((always_inline)) void multiply_group(Tiles& tiles,
                                                          const std::uint16_t* x,
                                                          float* products) {
  constexpr int kProducts = G % 2 == 0 ? kProducts0 : kProducts1;
  const auto step = [&]<int S>() __attribute__((always_inline)) {
    constexpr int kRows = S % 2 == 0 ? kSliceRows0 : kSliceRows1;
    tiles.template load<kRows>(x + S * kStepK * kTileRows, kStepK * 2);
    tiles.template multiply_bf16<kProducts, kRows, kCodes0 + S>();
  };
  tiles.template clear<kProducts>();
  step.template operator()<G * kStepsAGroup>();
  if constexpr (kStepsAGroup > 1) step.template operator()<G * kStepsAGroup + 1>();
  if constexpr (kStepsAGroup > 2) {
    step.template operator()<G * kStepsAGroup + 2>();
    step.template operator()<G * kStepsAGroup + 3>();
  }
  tiles.template store<kProducts>(products + place_of<kStepsAGroup>(G), kTileStride);
}

template <class Tiles>
inline void load_codes(Tiles& tiles,
                       const std::uint16_t* codes,
                       std::uint32_t n,
                       std::uint32_t step) {
  const std::size_t tile = std::size_t{step} * 16;
  tiles.template load<kCodes0>(codes, kTileStride);
  if (n > 1) tiles.template load<kCodes1>(codes + tile, kTileStride);
  if (n > 2) tiles.template load<kCodes2>(codes + 2 * tile, kTileStride);
  if (n > 3) tiles.template load<kCodes3>(codes + 3 * tile, kTileStride);
}

// A run of row blocks over a stretch.
struct Run {
  const AmxStretch* codes;
  const std::uint16_t* x;   // of the first row block
  std::size_t x_stride;     // bf16 values of a row block
  float* sums;              // of the first row block
  const float* group_sums;  // likewise, at the stretch's first group
  std::uint32_t n_blocks, n_steps, panel;
  bool is_first, is_last, prefetches;
};

template <int kStepsAGroup, int kStepK, int R, class Tiles>
class QuantizedPanels {
 public:
  // Few rows: codes go from lanes to tiles through L1, two stretches ahead. Many: a span of
  // stretches ahead, through L2, so that a run's sums stay in L1 for all of the span.
  QuantizedPanels(Tiles& tiles, const TileJob& t)
      : tiles_(tiles),
        t_(t),
        n_blocks_(t.n_row_blocks()),
        n_runs_((n_blocks_ + kRunBlocks - 1) / kRunBlocks),
        span_(n_blocks_ <= 2 ? 1 : kSpanStretches),
        ahead_(n_blocks_ <= 2 ? 2 : kSpanStretches),
        codes_(t.job, t.panel_begin, t.panel_end, ahead_, 2 * ahead_, t.scratch),
        waiting_{.sums = t.scratch.unused,
                 .scales = t.scratch.stretches[0].scales,
                 .group_sums = t.job.group_sums,
                 .n_groups = kGroups,
                 .panel = t.panel_begin,
                 .is_first = true,
                 .is_last = false} {}

  void multiply() {
    for (std::uint32_t panel = t_.panel_begin; panel < t_.panel_end; ++panel) {
      for (std::uint32_t begin = 0; begin < codes_.a_panel(); begin += span_) {
        const std::uint32_t left = codes_.a_panel() - begin;
        multiply_span(panel, begin, left < span_ ? left : span_);
      }
    }
    F32x16 sums[R];
    take_sums(waiting_, sums);
    scale_groups(waiting_, waiting_.n_groups, sums);
    put_sums(waiting_, sums);
  }

 private:
  static constexpr int kGroups = static_cast<int>(kStretchSteps) / kStepsAGroup;
  static constexpr std::size_t kTile = std::size_t{kStepK} * kTileRows;  // bf16 values

  // Stretches [begin, begin + n) of a panel for all rows.
  void multiply_span(std::uint32_t panel, std::uint32_t begin, std::uint32_t n) {
    const LinearJob& job = t_.job;
    const std::uint32_t first = (panel - t_.panel_begin) * codes_.a_panel() + begin;
    ahead_end_ = first + n + ahead_;
    const std::size_t x_stride = codes_.steps_a_panel() * kTile;
    for (std::uint32_t block = 0; block < n_blocks_; block += kRunBlocks) {
      const std::size_t row = t_.row_begin + std::size_t{block} * kTileRows;
      for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t in_panel = begin + i, left = n_blocks_ - block;
        Run run{.codes = &codes_.at(first + i),
                .x = job.x_tiles + row / kTileRows * x_stride + in_panel * kStretchSteps * kTile,
                .x_stride = x_stride,
                .sums = t_.sums(block),
                .group_sums = nullptr,
                .n_blocks = left < kRunBlocks ? left : kRunBlocks,
                .n_steps = codes_.steps_of(first + i),
                .panel = panel,
                .is_first = in_panel == 0,
                .is_last = in_panel + 1 == codes_.a_panel(),
                .prefetches = n_blocks_ > 2};
        if (job.layout.has_bias)
          run.group_sums = job.group_sums + row * job.layout.n_groups +
                           in_panel * static_cast<std::uint32_t>(kGroups);
        const bool is_full = run.n_steps == kStretchSteps && waiting_.n_groups == kGroups;
        is_full ? multiply_run<true>(run) : multiply_run<false>(run);
      }
    }
  }

  // Products of the run's slices, each while scales are put on those of the slice before. The tiles
  // come first, so that what lanes wait for is a slice old. What the loop needs stays in registers:
  // loads would wait for the tiles' stores (place_of).
  template <bool kFull>
  __attribute__((noinline)) void multiply_run(const Run& from) {
    const Run run = from;
    Waiting waiting = waiting_;
    float *products = products_, *products_before = products_before_;
    const std::uint32_t n_groups = run.n_steps / kStepsAGroup;
    for (std::uint32_t half = 0; half < 2; ++half) {
      load_codes(tiles_, run.codes->codes + half * kStretchHalves, run.n_steps, kStepK);
      const std::uint16_t* x = run.x;
      const float* group_sums = run.group_sums;
      float* own = run.sums + half * kTileFloats;
      const bool prefetches = run.prefetches && half == 1;
      for (std::uint32_t block = 0; block < run.n_blocks; ++block) {
        multiply_slice<kFull>(waiting, x, n_groups, prefetches, products, products_before);
        waiting = {.sums = own,
                   .scales = run.codes->scales + 16 * half,
                   .group_sums = group_sums,
                   .n_groups = n_groups,
                   .panel = run.panel,
                   .is_first = run.is_first,
                   .is_last = run.is_last};
        float* const last = products;
        products = products_before;
        products_before = last;
        x += run.x_stride;
        own += 2 * kTileFloats;
        if (group_sums) group_sums += std::size_t{kTileRows} * t_.job.layout.n_groups;
      }
      // By now the scales of the stretch before are used: their place may be taken.
      if (n_halves_++ % n_runs_ == 0) codes_.unpack_until(ahead_end_);
    }
    waiting_ = waiting;
    products_ = products;
    products_before_ = products_before;
  }

  template <bool kFull>
  inline __attribute__((always_inline)) void multiply_slice(const Waiting& before,
                                                            const std::uint16_t* x,
                                                            std::uint32_t n_groups,
                                                            bool prefetches,
                                                            float* products,
                                                            const float* products_before) {
    const bool has_bias = before.group_sums != nullptr;
    const std::size_t stride = t_.job.layout.n_groups;
    F32x16 sums[R];
    take_sums(before, sums);
    const auto group = [&]<int G>() __attribute__((always_inline)) {
      if (kFull || G < n_groups) multiply_group<kStepsAGroup, G, kStepK>(tiles_, x, products);
      if (prefetches) {  // the rows' next stretch
#pragma GCC unroll 64
        for (int line = 0; line < kStepsAGroup * kStepK / 2; ++line)
          prefetch(x + (kStretchSteps + G * kStepsAGroup) * kTile + 32 * line);
      }
      if (kFull || G < before.n_groups)
        scale_group<kStepsAGroup, G, R>(before, has_bias, stride, products_before, sums);
    };
    group.template operator()<0>();
    if constexpr (kGroups > 1) group.template operator()<1>();
    if constexpr (kGroups > 2) {
      group.template operator()<2>();
      group.template operator()<3>();
    }
    put_sums(before, sums);
  }

  inline void scale_groups(const Waiting& slice, std::uint32_t n, F32x16 (&sums)[R]) {
    const auto group = [&]<int G>() __attribute__((always_inline)) {
      if (G < n)
        scale_group<kStepsAGroup, G, R>(slice, slice.group_sums != nullptr, t_.job.layout.n_groups,
                                        products_before_, sums);
    };
    group.template operator()<0>();
    if constexpr (kGroups > 1) group.template operator()<1>();
    if constexpr (kGroups > 2) {
      group.template operator()<2>();
      group.template operator()<3>();
    }
  }

  static inline __attribute__((always_inline)) void take_sums(const Waiting& slice,
                                                              F32x16 (&sums)[R]) {
    if (slice.is_first) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sums[r] = zero();
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sums[r] = load(slice.sums + 16 * r);
    }
  }

  inline __attribute__((always_inline)) void put_sums(const Waiting& slice, F32x16 (&sums)[R]) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store(slice.sums + 16 * r, sums[r]);
    if (slice.is_last) put_slice(slice.sums, slice.panel);
  }

  // A finished slice to the outputs.
  __attribute__((noinline)) void put_slice(const float* sums, std::uint32_t panel) {
    const auto at = static_cast<std::uint32_t>((sums - t_.scratch.sums) / kTileFloats);
    const std::uint32_t row = t_.row_begin + at / 2 * kTileRows,
                        output = panel * kPanel + at % 2 * 16, left = t_.row_end - row,
                        n = left < kTileRows ? left : kTileRows;
    for (std::uint32_t r = 0; r < n; ++r)
      put_outputs(t_.job, output, row + r, t_.stream, load(sums + 16 * r));
  }

  Tiles& tiles_;
  const TileJob& t_;
  std::uint32_t n_blocks_, n_runs_, span_, ahead_;
  StretchStream codes_;
  Waiting waiting_;
  float* products_ = t_.scratch.products[0];
  float* products_before_ = t_.scratch.products[1];
  std::uint32_t n_halves_ = 0, ahead_end_ = 0;
};

template <int kStepsAGroup, int kStepK, class Tiles>
inline void quantized_rows(Tiles& tiles, const TileJob& t) {
  const std::uint32_t n_rows = t.row_end - t.row_begin;
  if (n_rows <= 8) return QuantizedPanels<kStepsAGroup, kStepK, 8, Tiles>(tiles, t).multiply();
  QuantizedPanels<kStepsAGroup, kStepK, 16, Tiles>(tiles, t).multiply();
}

}  // namespace
}  // namespace kvasir::backend::cpu
