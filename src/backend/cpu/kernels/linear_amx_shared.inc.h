// What products on tiles share: the scratch of a thread, its job, and finished sums → outputs.

namespace kvasir::backend::cpu {
namespace {

constexpr std::uint32_t kTileRows = 16;
constexpr std::size_t kTileFloats = kTileRows * 16;
constexpr std::size_t kTileStride = 64;         // of tiles that lie in memory as they are
constexpr std::uint32_t kDenseBlockSteps = 16;  // of a panel: they stay in L1
constexpr std::uint32_t kBlockSteps = 4;        // of a panel of codes, unpacked together
constexpr std::uint32_t kHalfCodes = kBlockSteps * kStep * 16;  // bf16 codes of half a block
constexpr std::uint32_t kPanelsTogether = 2;  // of codes, multiplied with rows that stay in tiles
constexpr std::size_t kStreamBytes = std::size_t{2} << 20;  // outputs that no cache should keep
constexpr std::size_t kCodesAheadBytes = 4096;

// Two blocks in turn: one is multiplied while the other is unpacked.
struct AmxScratch {
  std::uint16_t codes[2][kPanelsTogether * 2 * kHalfCodes];     // [half][step][pair][output][2]
  float products[2 * kTileFloats];                              // [row][output]
  float sums[kTileRowChunk * kPanelsTogether * kPanel];         // [row block][half][row][output]
  float scales[2][kPanelsTogether * 2 * kBlockSteps * kPanel];  // CodeBlock's
};
static_assert(sizeof(AmxScratch) <= kLinearScratchFloats * sizeof(float));

// ---- outputs ----

// A row's finished sums for half a panel.
inline void put_outputs(
    const LinearJob& job, std::uint32_t output, std::uint32_t row, bool stream, F32x16 sums) {
  if (output >= job.n_out) return;
  const std::uint32_t left = job.n_out - output;
  float* const to = job.out + row * job.out_stride + output;
  if (left < 16) {
    const F32x16 biased = job.bias ? add(sums, load_n(job.bias + output, left)) : sums;
    return store_n(to, biased, left);
  }
  const F32x16 biased = job.bias ? add(sums, load(job.bias + output)) : sums;
  stream ? _mm512_stream_ps(to, biased) : store(to, biased);
}

// Many rows at a stride of some KB fall into few sets of the caches: stores past them.
inline bool streams_outputs(const LinearJob& job) {
  const std::size_t misplaced = reinterpret_cast<std::size_t>(job.out) % 64 + job.out_stride % 16;
  return misplaced == 0 && job.n_rows * std::size_t{job.n_out} * sizeof(float) >= kStreamBytes;
}

struct TileJob {  // what a thread multiplies: some panels, at most kTileRowChunk rows
  const LinearJob& job;
  std::uint32_t panel_begin, panel_end, row_begin, row_end;  // row_begin: a multiple of kTileRows
  bool stream;
  AmxScratch& scratch;

  std::uint32_t n_row_blocks() const { return (row_end - row_begin + kTileRows - 1) / kTileRows; }
  float* sums(std::uint32_t row_block) const {
    return scratch.sums + std::size_t{row_block} * 2 * kTileFloats;
  }
};

}  // namespace
}  // namespace kvasir::backend::cpu
