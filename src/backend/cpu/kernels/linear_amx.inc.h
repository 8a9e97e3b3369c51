// Matrix products on tiles, bit for bit those of linear.inc.h: a step of that order is one tile
// product. Rows of x are operand A, packed by the host (LinearJob::x_tiles); a panel's codes are
// operand B: dense ones as they are stored, quantized ones in linear_amx_quantized.inc.h.

namespace kvasir::backend::cpu {
namespace {

// ---- dense weights ----

// Sums of rows [0, 16) and [16, 32) by outputs [0, 16) and [16, 32); rows; outputs.
enum TileName { kSum00, kSum01, kSum10, kSum11, kRows0, kRows1, kOutputs0, kOutputs1 };

// Rows of a panel whose sums are complete, written a few at a time while the tiles go on.
struct RowsDone {
  const TileJob& t;
  std::uint32_t panel, next, end;  // rows, from t.row_begin on
  inline void put(std::uint32_t n) {
    for (; n > 0 && next < end; --n, ++next) {
      const float* const at = t.sums(next / kTileRows) + std::size_t{next % kTileRows} * 16;
      put_outputs(t.job, panel * kPanel, t.row_begin + next, t.stream, load(at));
      put_outputs(t.job, panel * kPanel + 16, t.row_begin + next, t.stream, load(at + kTileFloats));
    }
  }
};

// Steps [begin, end) of two row blocks (or of one), their sums from memory (from +0 at the first
// step) and back.
template <bool kTwo, class Tiles>
inline void dense_steps(Tiles& tiles,
                        const TileJob& t,
                        std::uint32_t panel,
                        std::uint32_t row_block,
                        std::uint32_t begin,
                        std::uint32_t end,
                        std::uint32_t lines_a_step,
                        LinesAhead& ahead,
                        RowsDone& done) {
  const PackedLayout& w = t.job.layout;
  float* const sums = t.sums(row_block);
  if (begin == 0) {
    tiles.template clear<kSum00>();
    tiles.template clear<kSum01>();
    tiles.template clear<kSum10>();
    tiles.template clear<kSum11>();
  } else {
    tiles.template load<kSum00>(sums, kTileStride);
    tiles.template load<kSum01>(sums + kTileFloats, kTileStride);
    if constexpr (kTwo) {
      tiles.template load<kSum10>(sums + 2 * kTileFloats, kTileStride);
      tiles.template load<kSum11>(sums + 3 * kTileFloats, kTileStride);
    }
  }
  const bool is_whole = begin == 0 && end == w.n_groups;  // few rows: soon at the lines ahead
  const std::size_t tile = std::size_t{kStep} * kTileRows,
                    block = t.row_begin / kTileRows + row_block;
  const std::uint16_t *x0 = t.job.x_tiles + (block * w.n_groups + begin) * tile,
                      *x1 = x0 + w.n_groups * tile;
  const std::uint8_t* codes = t.job.weight + panel * w.panel_bytes + begin * w.group_bytes;
  for (std::uint32_t s = begin; s < end; ++s, codes += w.group_bytes, x0 += tile, x1 += tile) {
    is_whole ? ahead.ask(lines_a_step) : ahead.ask_beyond_l1(lines_a_step);
    tiles.template load<kOutputs0>(codes, kPanel * 4);
    tiles.template load<kRows0>(x0, kTileStride);
    tiles.template multiply_bf16<kSum00, kRows0, kOutputs0>();
    tiles.template load<kOutputs1>(codes + 64, kPanel * 4);
    tiles.template multiply_bf16<kSum01, kRows0, kOutputs1>();
    if constexpr (kTwo) {
      tiles.template load<kRows1>(x1, kTileStride);
      tiles.template multiply_bf16<kSum10, kRows1, kOutputs0>();
      tiles.template multiply_bf16<kSum11, kRows1, kOutputs1>();
    }
    done.put(2 * kTileRows / kDenseBlockSteps);
  }
  tiles.template store<kSum00>(sums, kTileStride);
  tiles.template store<kSum01>(sums + kTileFloats, kTileStride);
  if constexpr (kTwo) {
    tiles.template store<kSum10>(sums + 2 * kTileFloats, kTileStride);
    tiles.template store<kSum11>(sums + 3 * kTileFloats, kTileStride);
  }
}

template <class Tiles>
inline void dense_panel(Tiles& tiles, const TileJob& t, std::uint32_t panel, RowsDone& done) {
  const PackedLayout& w = t.job.layout;
  const std::uint32_t n_steps = w.n_groups, n_blocks = t.n_row_blocks(),
                      n_rows = t.row_end - t.row_begin,
                      steps_a_block = n_blocks <= 2 ? n_steps : kDenseBlockSteps;
  const auto lines = static_cast<std::uint32_t>(w.group_bytes / 64);  // of a step
  const std::uint32_t n_pairs = (n_blocks + 1) / 2, share = (lines + n_pairs - 1) / n_pairs;
  // Few rows: a little ahead in the stream; many: the next stretch of K while this one is used.
  const std::size_t distance = n_blocks <= 2 ? kPrefetchBytes : steps_a_block * w.group_bytes;
  const std::uint8_t* const weight = t.job.weight + panel * w.panel_bytes;
  for (std::uint32_t begin = 0; begin < n_steps; begin += steps_a_block) {
    const std::uint32_t end = n_steps - begin < steps_a_block ? n_steps : begin + steps_a_block;
    LinesAhead ahead{weight + begin * w.group_bytes + distance,
                     weight + end * w.group_bytes + distance};
    for (std::uint32_t block = 0; block < n_blocks; block += 2) {
      block + 1 < n_blocks
          ? dense_steps<true>(tiles, t, panel, block, begin, end, share, ahead, done)
          : dense_steps<false>(tiles, t, panel, block, begin, end, share, ahead, done);
      if (end < n_steps) continue;
      const std::uint32_t complete = (block + 2) * kTileRows;
      done.end = complete < n_rows ? complete : n_rows;
    }
  }
}

template <class Tiles>
inline void dense_panels(Tiles& tiles, const TileJob& t) {
  for (std::uint32_t panel = t.panel_begin; panel < t.panel_end; ++panel) {
    RowsDone done{.t = t, .panel = panel, .next = 0, .end = 0};
    dense_panel(tiles, t, panel, done);
    done.put(t.row_end - t.row_begin);
  }
}

// ---- the entry ----

inline TileConfig dense_shapes(std::uint32_t rows) {
  TileConfig config;
  for (int sums = kSum00; sums <= kSum11; ++sums) config.set(sums, rows, 64);
  for (int x = kRows0; x <= kRows1; ++x) config.set(x, rows, 2 * kStep);
  for (int outputs = kOutputs0; outputs <= kOutputs1; ++outputs) config.set(outputs, kStep / 2, 64);
  return config;
}

inline TileConfig quantized_shapes(std::uint32_t rows, std::uint32_t step) {
  TileConfig config;
  for (int products = kProducts0; products <= kProducts1; ++products)
    config.set(products, rows, 64);
  for (int x = kHeld0; x <= kHeld3; ++x) config.set(x, rows, 2 * step);
  for (int codes = kCodes0; codes <= kCodes1; ++codes) config.set(codes, step / 2, 64);
  return config;
}

template <class Tiles>
void linear_tiles(const LinearJob& job,
                  std::uint32_t panel_begin,
                  std::uint32_t panel_end,
                  std::uint32_t row_begin,
                  std::uint32_t row_end,
                  float* scratch) {
  const PackedLayout& w = job.layout;
  const bool is_dense = w.scale == ScaleKind::none, stream = streams_outputs(job);
  const std::uint32_t step = w.group < kStep ? w.group : kStep, n_rows = row_end - row_begin,
                      rows = n_rows < kTileRows ? n_rows : kTileRows;
  Tiles tiles(is_dense ? dense_shapes(rows) : quantized_shapes(rows, step));
  for (std::uint32_t row = row_begin; row < row_end; row += kTileRowChunk) {
    const TileJob t{.job = job,
                    .panel_begin = panel_begin,
                    .panel_end = panel_end,
                    .row_begin = row,
                    .row_end = row_end - row < kTileRowChunk ? row_end : row + kTileRowChunk,
                    .stream = stream,
                    .scratch = *reinterpret_cast<AmxScratch*>(scratch)};
    if (is_dense) {
      dense_panels(tiles, t);
    } else if (w.group == kStep / 2) {
      quantized_rows<1, kStep / 2>(tiles, t);
    } else if (w.group == kStep) {
      quantized_rows<1, kStep>(tiles, t);
    } else {
      w.group == 2 * kStep ? quantized_rows<2, kStep>(tiles, t)
                           : quantized_rows<4, kStep>(tiles, t);
    }
  }
  if (stream) _mm_sfence();
}

}  // namespace
}  // namespace kvasir::backend::cpu
