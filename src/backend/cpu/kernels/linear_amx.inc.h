// Matrix products on tiles, bit for bit those of linear.inc.h: a step of that order is one tile
// product. Rows of x are operand A, packed by the host (LinearJob::x_tiles); a panel's codes are
// operand B: dense ones as they are stored, quantized ones in linear_amx_quantized.inc.h.

namespace kvasir::backend::cpu {
namespace {

// ---- dense weights ----

// Sums of rows [0, 16) and [16, 32) by outputs [0, 16) and [16, 32), all zero between panels; rows;
// outputs.
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

template <int kSum, class Tiles>
inline __attribute__((always_inline)) void leave(Tiles& tiles, float* to) {
  tiles.template store<kSum>(to, kTileStride);
  tiles.template clear<kSum>();
}

// All steps of two row blocks, or of one: few rows, which wait for the panel's codes.
template <bool kTwo, class Tiles>
inline void few_rows(Tiles& tiles, const TileJob& t, std::uint32_t panel) {
  const PackedLayout& w = t.job.layout;
  const std::size_t tile = std::size_t{kStep} * kTileRows, x_stride = w.n_groups * tile;
  const std::uint16_t *x0 = t.job.x_tiles + t.row_begin / kTileRows * x_stride, *x1 = x0 + x_stride;
  const std::uint8_t* codes = t.job.weight + panel * w.panel_bytes;
  for (std::uint32_t s = 0; s < w.n_groups; ++s, codes += w.group_bytes, x0 += tile, x1 += tile) {
    for (std::size_t line = 0; line < w.group_bytes; line += 64) ask_ahead(codes + line);
    tiles.template load<kOutputs0>(codes, kPanel * 4);
    tiles.template load<kRows0>(x0, kTileStride);
    tiles.template multiply_bf16<kSum00, kRows0, kOutputs0>();
    tiles.template load<kOutputs1>(codes + 64, kPanel * 4);
    tiles.template multiply_bf16<kSum01, kRows0, kOutputs1>();
    tiles.template clear<kRows0>();
    if constexpr (kTwo) {
      tiles.template load<kRows1>(x1, kTileStride);
      tiles.template multiply_bf16<kSum10, kRows1, kOutputs0>();
      tiles.template multiply_bf16<kSum11, kRows1, kOutputs1>();
      tiles.template clear<kRows1>();
    }
    tiles.template clear<kOutputs0>();
    tiles.template clear<kOutputs1>();
  }
  leave<kSum00>(tiles, t.sums(0));
  leave<kSum01>(tiles, t.sums(0) + kTileFloats);
  if constexpr (kTwo) {
    leave<kSum10>(tiles, t.sums(1));
    leave<kSum11>(tiles, t.sums(1) + kTileFloats);
  }
  RowsDone done{.t = t, .panel = panel, .next = 0, .end = t.row_end - t.row_begin};
  done.put(done.end);
}

// Many rows by a panel: a stretch of its steps stays in L1 while row blocks go by.
template <class Tiles>
class TallPanel {
 public:
  TallPanel(Tiles& tiles, const TileJob& t, std::uint32_t panel)
      : tiles_(tiles),
        t_(t),
        w_(t.job.layout),
        weight_(t.job.weight + panel * w_.panel_bytes),
        done_{.t = t, .panel = panel, .next = 0, .end = 0} {}

  void multiply() {
    const std::uint32_t n_blocks = t_.n_row_blocks(), n_rows = t_.row_end - t_.row_begin;
    for (std::uint32_t begin = 0; begin < w_.n_groups; begin += kDenseBlockSteps) {
      const std::uint32_t left = w_.n_groups - begin,
                          n = left < kDenseBlockSteps ? left : kDenseBlockSteps;
      const std::size_t bytes = kDenseBlockSteps * w_.group_bytes;  // the next stretch: into L2
      const std::uint8_t* const next = weight_ + begin * w_.group_bytes + bytes;
      ahead_ = {next, next + bytes};
      const auto lines = static_cast<std::uint32_t>(w_.group_bytes / 64);
      lines_a_step_ = (lines + n_blocks - 1) / n_blocks;
      for (std::uint32_t block = 0; block < n_blocks; ++block) {
        steps(block, begin, n);
        const std::uint32_t rows = (block + 1) * kTileRows;
        if (begin + n == w_.n_groups) done_.end = rows < n_rows ? rows : n_rows;
      }
    }
    done_.put(n_rows);
  }

 private:
  inline void steps(std::uint32_t block, std::uint32_t begin, std::uint32_t n) {
    constexpr std::size_t kTile = std::size_t{kStep} * kTileRows;
    float* const sums = t_.sums(block);
    const std::uint16_t* x =
        t_.job.x_tiles + ((t_.row_begin / kTileRows + block) * w_.n_groups + begin) * kTile;
    const std::uint8_t* codes = weight_ + begin * w_.group_bytes;
    if (begin > 0) {
      tiles_.template load<kSum00>(sums, kTileStride);
      tiles_.template load<kSum01>(sums + kTileFloats, kTileStride);
    }
    for (std::uint32_t s = 0; s < n; ++s, codes += w_.group_bytes, x += kTile) {
      ahead_.ask_beyond_l1(lines_a_step_);
      tiles_.template load_once<kRows0>(x, kTileStride);
      tiles_.template load<kOutputs0>(codes, kPanel * 4);
      tiles_.template multiply_bf16<kSum00, kRows0, kOutputs0>();
      tiles_.template clear<kOutputs0>();
      tiles_.template load<kOutputs1>(codes + 64, kPanel * 4);
      tiles_.template multiply_bf16<kSum01, kRows0, kOutputs1>();
      tiles_.template clear<kRows0>();
      tiles_.template clear<kOutputs1>();
      done_.put(1);
    }
    leave<kSum00>(tiles_, sums);
    leave<kSum01>(tiles_, sums + kTileFloats);
  }

  Tiles& tiles_;
  const TileJob& t_;
  const PackedLayout& w_;
  const std::uint8_t* weight_;
  RowsDone done_;
  LinesAhead ahead_{};
  std::uint32_t lines_a_step_ = 0;
};

template <class Tiles>
inline void dense_panels(Tiles& tiles, const TileJob& t) {
  const std::uint32_t n_blocks = t.n_row_blocks();
  for (std::uint32_t panel = t.panel_begin; panel < t.panel_end; ++panel) {
    if (n_blocks > 2) {
      TallPanel<Tiles>(tiles, t, panel).multiply();
    } else {
      n_blocks == 2 ? few_rows<true>(tiles, t, panel) : few_rows<false>(tiles, t, panel);
    }
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
  config.set(kCodes, step / 2, 64);
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
