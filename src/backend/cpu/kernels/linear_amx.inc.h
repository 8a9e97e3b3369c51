// Matrix products on tiles, bit for bit those of linear.inc.h: a step of that order is one tile
// product. Rows of x are operand A, packed by the host (LinearJob::x_tiles); a panel's codes are
// operand B: dense ones as they are stored, quantized ones made bf16 (exact) a stretch of K at a
// time. Products of a group leave their tile for memory, where scales join them in lanes, while the
// tiles are at the next rows.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kTileRows = 16;
constexpr std::uint32_t kQuantizedBlockK = 128, kDenseBlockK = 256;
constexpr std::uint32_t kBlockGroups = kQuantizedBlockK / 16;  // groups have at least 16 elements
constexpr std::size_t kTileFloats = kTileRows * 16;

// Tiles: sums of rows [0, 16) and [16, 32) by outputs [0, 16) and [16, 32); rows; outputs.
enum TileName { kSum00, kSum01, kSum10, kSum11, kRows0, kRows1, kOutputs0, kOutputs1 };

struct AmxScratch {
  std::uint16_t codes[kQuantizedBlockK * kPanel];  // [step][half][pair][output][2]
  float scales[kBlockGroups * kPanel];             // [group][output]
  float biases[kBlockGroups * kPanel];
  float products[2][kBlockGroups * 2 * kTileFloats];  // [row block % 2][group][half][row][output]
  float sums[kRowChunk * kPanel];                     // [row block][half][row][output]
};
static_assert(sizeof(AmxScratch) <= kLinearScratchFloats * sizeof(float));

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

template <bool kSigned>
inline void unpack_nibbles(const std::uint8_t* codes,
                           std::uint32_t n,
                           std::uint32_t step,
                           std::uint16_t* to) {
  const __m512i table = nibble_table<kSigned>();
  const std::size_t half_stride = std::size_t{step} * 16;
  for (std::uint32_t k = 0; k < n; k += 8, codes += 128) {
    prefetch(codes + kPrefetchBytes);
    prefetch(codes + kPrefetchBytes + 64);
    std::uint16_t* out = to + std::size_t{k / step} * step * kPanel + k % step * 16;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half, out += half_stride) {
      const __m512i v = _mm512_loadu_si512(codes + 64 * half);
      _mm512_storeu_si512(out, nibble_pair<0>(v, table));
      _mm512_storeu_si512(out + 32, nibble_pair<1>(v, table));
      _mm512_storeu_si512(out + 64, nibble_pair<2>(v, table));
      _mm512_storeu_si512(out + 96, nibble_pair<3>(v, table));
    }
  }
}

template <bool kSigned>
inline void unpack_bytes(const std::uint8_t* codes,
                         std::uint32_t n,
                         std::uint32_t step,
                         std::uint16_t* to) {
  const std::size_t half_stride = std::size_t{step} * 16;
  const auto widen = [](const std::uint8_t* p) {  // integers of 8 bits: exact in the upper half
    return bits(kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p));
  };
  for (std::uint32_t k = 0; k < n; k += 2, codes += 2 * kPanel) {
    prefetch(codes + kPrefetchBytes);
    std::uint16_t* const out = to + std::size_t{k / step} * step * kPanel + k % step * 16;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const U32x16 even = widen(codes + 16 * half), odd = widen(codes + kPanel + 16 * half);
      _mm512_storeu_si512(out + static_cast<std::size_t>(half) * half_stride,
                          or_u(shift_right<16>(even), odd));
    }
  }
}

inline void unpack_codes(const PackedLayout& w,
                         const std::uint8_t* codes,
                         std::uint32_t step,
                         std::uint16_t* to) {
  if (w.code == CodeKind::nibble)
    return w.is_signed ? unpack_nibbles<true>(codes, w.group, step, to)
                       : unpack_nibbles<false>(codes, w.group, step, to);
  return w.is_signed ? unpack_bytes<true>(codes, w.group, step, to)
                     : unpack_bytes<false>(codes, w.group, step, to);
}

inline void unpack_block(const PackedLayout& w,
                         const std::uint8_t* group,
                         std::uint32_t n_groups,
                         std::uint32_t step,
                         AmxScratch& to) {
  const std::size_t codes_at = w.has_bias ? 2 * w.scales_bytes : w.scales_bytes;
  for (std::uint32_t g = 0; g < n_groups; ++g, group += w.group_bytes) {
    for (int h = 0; h < 2; ++h) {
      store(to.scales + g * kPanel + 16 * h, load_scales(w.scale, group, h));
      if (w.has_bias)
        store(to.biases + g * kPanel + 16 * h, load_scales(w.scale, group + w.scales_bytes, h));
    }
    unpack_codes(w, group + codes_at, step, to.codes + std::size_t{g} * w.group * kPanel);
  }
}

// ---- one panel, some rows ----

struct AmxPanel {
  const LinearJob& job;
  std::uint32_t panel, row_begin, row_end;  // row_begin: a multiple of kTileRows
  std::uint32_t step;
  AmxScratch& scratch;

  std::uint32_t n_row_blocks() const { return (row_end - row_begin + kTileRows - 1) / kTileRows; }
  std::uint32_t n_steps() const { return job.layout.group * job.layout.n_groups / step; }
  std::size_t tile_halves() const { return std::size_t{step} * kTileRows; }
  // The tile of x of a row block at a step.
  const std::uint16_t* rows(std::uint32_t row_block, std::uint32_t at_step) const {
    const std::size_t block = row_begin / kTileRows + row_block;
    return job.x_tiles + (block * n_steps() + at_step) * tile_halves();
  }
  float* sums(std::uint32_t row_block) const {
    return scratch.sums + std::size_t{row_block} * 2 * kTileFloats;
  }
  void finish() const {
    for (std::uint32_t row = row_begin; row < row_end; ++row) {
      const std::uint32_t r = row - row_begin;
      const float* const at = sums(r / kTileRows) + std::size_t{r % kTileRows} * 16;
      store_outputs(job, panel, row, load(at), load(at + kTileFloats));
    }
  }
};

constexpr std::size_t kTileStride = 64;  // of tiles that lie in memory as they are

// A group's products with a row block, to memory.
template <class Tiles>
inline void multiply_group(Tiles& tiles,
                           const AmxPanel& p,
                           std::uint32_t row_block,
                           std::uint32_t block_step,
                           std::uint32_t g,
                           float* products) {
  const std::uint32_t steps_a_group = p.job.layout.group / p.step, first = g * steps_a_group;
  tiles.template clear<kSum00>();
  tiles.template clear<kSum01>();
  for (std::uint32_t s = first; s < first + steps_a_group; ++s) {
    const std::uint16_t* const codes = p.scratch.codes + std::size_t{s} * p.step * kPanel;
    tiles.template load<kRows0>(p.rows(row_block, block_step + s), std::size_t{p.step} * 2);
    tiles.template load<kOutputs0>(codes, kTileStride);
    tiles.template load<kOutputs1>(codes + std::size_t{p.step} * 16, kTileStride);
    tiles.template multiply_bf16<kSum00, kRows0, kOutputs0>();
    tiles.template multiply_bf16<kSum01, kRows0, kOutputs1>();
  }
  tiles.template store<kSum00>(products + std::size_t{g} * 2 * kTileFloats, kTileStride);
  tiles.template store<kSum01>(products + (std::size_t{g} * 2 + 1) * kTileFloats, kTileStride);
}

// Scales (and biases) of n_groups onto the sums of R rows of a row block, one half of the outputs
// at a time; between groups `meanwhile()` starts other work.
template <int R, class F>
inline void scale_products(const AmxPanel& p,
                           std::uint32_t row_block,
                           std::uint32_t g0,
                           std::uint32_t n_groups,
                           const float* products,
                           F&& meanwhile) {
  const LinearJob& job = p.job;
  const std::uint32_t row = p.row_begin + row_block * kTileRows,
                      n_rows = p.row_end - row < R ? p.row_end - row : R;
  for (std::uint32_t half = 0; half < 2; ++half) {
    float* const to = p.sums(row_block) + half * kTileFloats;
    F32x16 sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums[r] = load(to + 16 * r);
    for (std::uint32_t g = 0; g < n_groups; ++g) {
      if (half == 0) meanwhile();
      const float* const c = products + (std::size_t{g} * 2 + half) * kTileFloats;
      const F32x16 scale = load(p.scratch.scales + g * kPanel + 16 * half);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sums[r] = fma(scale, load(c + 16 * r), sums[r]);
      if (!job.layout.has_bias) continue;
      const F32x16 bias = load(p.scratch.biases + g * kPanel + 16 * half);
      const float* group_sums = job.group_sums + std::size_t{row} * job.layout.n_groups + g0 + g;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {  // rows past the end: their sums are never read
        const std::size_t at =
            static_cast<std::uint32_t>(r) < n_rows ? static_cast<std::size_t>(r) : 0;
        sums[r] = fma(bias, set1(group_sums[at * job.layout.n_groups]), sums[r]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store(to + 16 * r, sums[r]);
  }
}

template <int R, class Tiles>
inline void quantized_panel(Tiles& tiles, const AmxPanel& p) {
  const PackedLayout& w = p.job.layout;
  const std::uint32_t groups_a_block = kQuantizedBlockK / w.group, n_blocks = p.n_row_blocks();
  for (std::size_t i = 0; i < n_blocks * 2 * kTileFloats; i += 16)
    store(p.scratch.sums + i, zero());
  for (std::uint32_t g0 = 0; g0 < w.n_groups; g0 += groups_a_block) {
    const std::uint32_t left = w.n_groups - g0, n = left < groups_a_block ? left : groups_a_block;
    unpack_block(w, p.job.weight + p.panel * w.panel_bytes + g0 * w.group_bytes, n, p.step,
                 p.scratch);
    const std::uint32_t block_step = g0 * w.group / p.step;
    for (std::uint32_t g = 0; g < n; ++g)
      multiply_group(tiles, p, 0, block_step, g, p.scratch.products[0]);
    for (std::uint32_t block = 0; block < n_blocks; ++block) {
      std::uint32_t g = 0;
      scale_products<R>(p, block, g0, n, p.scratch.products[block % 2], [&] {
        if (block + 1 < n_blocks)
          multiply_group(tiles, p, block + 1, block_step, g++, p.scratch.products[(block + 1) % 2]);
      });
    }
  }
  p.finish();
}

// ---- dense weights ----

// Steps [begin, end) of two row blocks (or of one), their sums from memory and back.
template <bool kTwo, class Tiles>
inline void dense_steps(Tiles& tiles,
                        const AmxPanel& p,
                        std::uint32_t row_block,
                        std::uint32_t begin,
                        std::uint32_t end,
                        std::uint32_t lines_a_step,
                        LinesAhead& ahead) {
  float* const sums = p.sums(row_block);
  tiles.template load<kSum00>(sums, kTileStride);
  tiles.template load<kSum01>(sums + kTileFloats, kTileStride);
  if constexpr (kTwo) {
    tiles.template load<kSum10>(sums + 2 * kTileFloats, kTileStride);
    tiles.template load<kSum11>(sums + 3 * kTileFloats, kTileStride);
  }
  const PackedLayout& w = p.job.layout;
  const std::uint8_t* codes = p.job.weight + p.panel * w.panel_bytes + begin * w.group_bytes;
  for (std::uint32_t s = begin; s < end; ++s, codes += w.group_bytes) {
    ahead.ask(lines_a_step);
    tiles.template load<kOutputs0>(codes, kPanel * 4);
    tiles.template load<kOutputs1>(codes + 64, kPanel * 4);
    tiles.template load<kRows0>(p.rows(row_block, s), kTileStride);
    tiles.template multiply_bf16<kSum00, kRows0, kOutputs0>();
    tiles.template multiply_bf16<kSum01, kRows0, kOutputs1>();
    if constexpr (kTwo) {
      tiles.template load<kRows1>(p.rows(row_block + 1, s), kTileStride);
      tiles.template multiply_bf16<kSum10, kRows1, kOutputs0>();
      tiles.template multiply_bf16<kSum11, kRows1, kOutputs1>();
    }
  }
  tiles.template store<kSum00>(sums, kTileStride);
  tiles.template store<kSum01>(sums + kTileFloats, kTileStride);
  if constexpr (kTwo) {
    tiles.template store<kSum10>(sums + 2 * kTileFloats, kTileStride);
    tiles.template store<kSum11>(sums + 3 * kTileFloats, kTileStride);
  }
}

template <class Tiles>
inline void dense_panel(Tiles& tiles, const AmxPanel& p) {
  const PackedLayout& w = p.job.layout;
  const std::uint32_t n_steps = w.n_groups, n_blocks = p.n_row_blocks(),
                      steps_a_block = n_blocks <= 2 ? n_steps : kDenseBlockK / kStep;
  const auto lines = static_cast<std::uint32_t>(w.group_bytes / 64);  // of a step
  const std::uint32_t n_pairs = (n_blocks + 1) / 2, share = (lines + n_pairs - 1) / n_pairs;
  // Few rows: a little ahead in the stream; many: the next stretch of K while this one is used.
  const std::size_t distance = n_blocks <= 2 ? kPrefetchBytes : steps_a_block * w.group_bytes;
  const std::uint8_t* const weight = p.job.weight + p.panel * w.panel_bytes;
  for (std::size_t i = 0; i < n_blocks * 2 * kTileFloats; i += 16)
    store(p.scratch.sums + i, zero());
  for (std::uint32_t begin = 0; begin < n_steps; begin += steps_a_block) {
    const std::uint32_t end = n_steps - begin < steps_a_block ? n_steps : begin + steps_a_block;
    LinesAhead ahead{weight + begin * w.group_bytes + distance,
                     weight + end * w.group_bytes + distance};
    std::uint32_t block = 0;
    for (; block + 1 < n_blocks; block += 2)
      dense_steps<true>(tiles, p, block, begin, end, share, ahead);
    if (block < n_blocks) dense_steps<false>(tiles, p, block, begin, end, share, ahead);
  }
  p.finish();
}

// ---- the entry ----

inline TileConfig shape_tiles(std::uint32_t n_rows, std::uint32_t step) {
  const std::uint32_t rows = n_rows < kTileRows ? n_rows : kTileRows;
  TileConfig config;
  for (int sum = kSum00; sum <= kSum11; ++sum) config.set(sum, rows, 64);
  for (int x = kRows0; x <= kRows1; ++x) config.set(x, rows, 2 * step);
  for (int outputs = kOutputs0; outputs <= kOutputs1; ++outputs) config.set(outputs, step / 2, 64);
  return config;
}

template <class Tiles>
void linear_tiles(const LinearJob& job,
                  std::uint32_t panel_begin,
                  std::uint32_t panel_end,
                  std::uint32_t row_begin,
                  std::uint32_t row_end,
                  float* scratch) {
  const std::uint32_t step = job.layout.group < kStep ? job.layout.group : kStep;
  Tiles tiles(shape_tiles(row_end - row_begin, step));
  auto& room = *reinterpret_cast<AmxScratch*>(scratch);
  for (std::uint32_t panel = panel_begin; panel < panel_end; ++panel) {
    for (std::uint32_t row = row_begin; row < row_end; row += kRowChunk) {
      const std::uint32_t end = row_end - row < kRowChunk ? row_end : row + kRowChunk;
      const AmxPanel p{job, panel, row, end, step, room};
      if (job.layout.scale == ScaleKind::none) {
        dense_panel(tiles, p);
      } else if (row_end - row_begin <= 4) {
        quantized_panel<4>(tiles, p);
      } else {
        quantized_panel<16>(tiles, p);
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
