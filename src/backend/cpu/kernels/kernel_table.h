// The border between host code and the kernels, which are compiled once an instruction set from the
// same source. Plain data and function pointers only: an inline function here could be emitted with
// instructions that the CPU lacks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir::backend::cpu {

constexpr std::uint32_t kPanel = 32;  // outputs side by side in a weight panel
constexpr std::uint32_t kStep = 32;   // elements of K in one pair of chains
constexpr std::uint32_t kBlockK =
    128;  // elements of K decoded at once for many rows; a multiple of every group
constexpr std::uint32_t kRowChunk = 256;      // rows that share one decoding of a panel
constexpr std::uint32_t kTileRowChunk = 512;  // at most, of tiles
constexpr std::size_t kTileRowsBytes = std::size_t{1} << 20;  // of x in tiles: leaves room in L2
constexpr std::uint32_t kRowAlign = 16;                       // where runs of rows begin
constexpr std::uint32_t kTileKeys = 64;                       // keys of an attention tile
constexpr std::uint32_t kChunkQueries = 48;  // (query, head) pairs that walk the keys together
constexpr std::uint32_t kTileQueries = 256;  // at most, of tiles
constexpr std::uint32_t kTilesTogether = 8;  // of keys, whose values are packed at once, at most

enum class CodeKind : std::uint8_t { bf16, f32, nibble, byte };
enum class ScaleKind : std::uint8_t { none, f32, f16, bf16 };  // none: dense

// A packed weight: panels of kPanel outputs, each a run of groups along K. A group is
// [scales][biases][codes]; dense weights have groups of one step without scales. Codes: bf16 [pair
// of k][output] dwords (even k low), nibble [8 k] [output] dwords (even k
// in the low half, odd ones in the high one, lowest k lowest; signed codes + 8), byte and f32
// [k][output].
struct PackedLayout {
  CodeKind code = CodeKind::bf16;
  ScaleKind scale = ScaleKind::none;
  bool has_bias = false;
  bool is_signed = false;
  // Codes are stored so much lower than they are (bytes without a sign, to have one), for products
  // alone: their biases make up for it (load_biases).
  std::uint8_t code_shift = 0;
  // Activations go to the grid of their group, of so many bits below their largest one's first
  // (docs/numerics.md); 0: they are as they are.
  std::uint8_t grid = 0;
  std::uint32_t group = 0;  // elements of K
  std::uint32_t n_groups = 0;
  std::size_t scales_bytes = 0;  // of one group's scales (and of its biases)
  std::size_t group_bytes = 0;
  std::size_t panel_bytes = 0;
};

struct LinearJob {
  const std::uint8_t* weight;
  PackedLayout layout;
  // Rounded as the weight asks, K padded with zeros to group * n_groups. Up to direct_rows rows:
  // [k][row]; more: [row / kRowAlign][k][row % kRowAlign].
  const float* x;
  const float* group_sums;  // [n_rows, n_groups] when the layout has biases
  std::uint32_t n_rows;
  const float* bias;  // [n_out] or null
  float* out;
  std::size_t out_stride;
  std::uint32_t n_out;
  // x as bf16 instead, where the kernels have tiles and x is rounded to it: [row / kRowAlign][step]
  // [row % kRowAlign][the step's elements of K]; group_sums are then readable to a whole kRowAlign
  // of rows. Or null.
  const std::uint16_t* x_tiles = nullptr;
  // Or as pairs of bf16, where the kernels multiply those: in the place of each eight elements of
  // K, four of x's order above: elements (0, 2), (4, 6), (1, 3), (5, 7), the first in the high
  // half.
  const std::uint32_t* x_pairs = nullptr;
};

// How codes of an encoded KV row become the numbers that products take. narrow, five, wide: entries
// of a table, for codes of at most 4, of 5, of 8 bits; byte, signed_byte: the integers themselves.
enum class KvCode : std::uint8_t { narrow, five, byte, signed_byte, wide, wide_bf16 };

// Keys or values of a layer in encoded form: planes [block][head][slot][bytes of a row]; a row's
// codes have at least 16 bytes. element = code · scale + offset, for groups along the row.
struct EncodedSide {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* offsets = nullptr;            // null: none
  const float* table = nullptr;                     // [16] repeating, [32] or [256]
  std::uint32_t codes_bytes = 0, scales_bytes = 0;  // of a row; offsets take as many as scales
  std::uint32_t bits = 0, group = 0, n_groups = 0;
  KvCode code = KvCode::byte;
  ScaleKind scale = ScaleKind::bf16;
  bool offset_is_zero_point = false;  // the offset is the stored one times the scale
};

struct AttentionJob {
  const float* q;
  std::size_t q_stride;
  float* out;
  std::size_t out_stride;
  const std::uint8_t* k;
  const std::uint8_t* v;
  bool is_f32;
  std::uint32_t n_kv_heads, head_dim, block_tokens, window, queries_per_kv;
  float scale, softcap;
  const float* sinks;
  bool is_f16 = false;  // neither is_f32 nor is_f16: bf16, and products take bf16 operands
  EncodedSide k_encoded, v_encoded;
};

// Consecutive queries of one row on one kv head.
struct AttentionItem {
  const std::uint32_t* blocks;
  std::uint32_t position;   // of the first query
  std::uint32_t n_queries;  // n_queries * queries_per_kv <= max(kTileQueries, queries_per_kv)
  std::uint32_t token;      // index of the first query in q and out
  std::uint32_t kv_head;
  bool is_encoded = false;
  std::uint32_t n_keys = 0;  // > 0: attention both ways over so many; else causal
  // A part of one query's tiles [first_tile, end_tile): what each gave by itself goes here, for
  // merge_tiles: [tile][attention_partial_floats]. Null: the whole.
  float* partials = nullptr;
  std::uint32_t first_tile = 0, end_tile = 0;
};

// Of a tile and n pairs of (query, head): [n] largest, [n] sums, [n][head_dim padded] outputs.
constexpr std::size_t attention_partial_floats(std::uint32_t head_dim, std::size_t n) {
  return n * (2 + (std::size_t{head_dim} + 15) / 16 * 16);
}

struct RowsJob {  // element-wise: rows [begin, end) of matrices with n_cols columns
  const float* x;
  std::size_t x_stride;
  const float* y;
  std::size_t y_stride;
  float* out;
  std::size_t out_stride;
  std::uint32_t n_cols;
  float alpha, softcap;
};

struct NormJob {
  const float* x;
  std::size_t x_stride;
  float* out;
  std::size_t out_stride;
  const float* weight;
  const float* bias;            // layer_norm: or null
  std::uint32_t n_cols, group;  // layer_norm: the same
  float eps;
};

struct RopeJob {
  float* x;
  std::size_t x_stride;
  const std::uint32_t* positions;
  const float* cos;
  const float* sin;
  std::uint32_t n_cols, head_dim, n_pairs;
  bool interleaved;
};

struct L2NormJob {
  const float* x;
  std::size_t x_stride;
  float* out;
  std::size_t out_stride;
  std::uint32_t n_cols, group;
  float eps, scale;
};

struct ConvJob {
  const float* x;
  std::size_t x_stride;
  float* out;  // null: only the tails
  std::size_t out_stride;
  const float* weight;  // [kernel, n_channels]
  const float* bias;    // or null
  std::uint32_t kernel, n_channels;
  bool silu, is_f32;
};

struct ConvItem {            // one row of the step
  const std::uint8_t* from;  // its tail, or null: zeros
  std::uint8_t* to;
  std::uint32_t n_new, token;
};

struct DeltaGatesJob {
  const float *a, *b;
  std::size_t a_stride, b_stride;
  const float *a_log, *dt_bias;
  float *decay, *beta;
  std::size_t decay_stride, beta_stride;
  std::uint32_t n_heads;
};

struct DeltaJob {
  const float *q, *k, *v, *decay, *beta;
  std::size_t q_stride, k_stride, v_stride, decay_stride, beta_stride;
  float* out;  // null: only the states
  std::size_t out_stride;
  std::uint32_t values_per_key, value_dim, key_dim;
};

struct DeltaItem {    // one value head of one row of the step
  const float* from;  // its state, or null: zeros
  float* to;
  std::uint32_t n_new, token, head;
};

struct IndexJob {
  const std::uint8_t* keys;
  bool is_f32;
  std::uint32_t n_heads, dim, block_tokens;
};

struct IndexItem {       // one query on positions [begin, end)
  const float* q;        // [n_heads, dim]
  const float* weights;  // [n_heads]
  const std::uint32_t* blocks;
  std::uint32_t begin, end;  // begin: of a tile
  float* scores;             // [end - begin]
};

struct KernelTable {
  const char* name;
  // Panels [panel_begin, panel_end) of rows [row_begin, row_end), row_begin a multiple of
  // kRowAlign. scratch: kLinearScratchFloats.
  void (*linear)(const LinearJob&,
                 std::uint32_t panel_begin,
                 std::uint32_t panel_end,
                 std::uint32_t row_begin,
                 std::uint32_t row_end,
                 float* scratch);
  // Rows up to which `linear` multiplies while it decodes; they have x side by side.
  std::uint32_t direct_rows;
  // rows [n_rows, n] → [k][width], rows past the last as zeros; n a multiple of 16.
  void (*pack_rows)(
      const float* rows, std::uint32_t n_rows, std::uint32_t n, std::uint32_t width, float* out);
  // Where `linear` wants x_pairs: likewise, of values of bf16. Null: nowhere.
  void (*pack_pairs)(const float* rows,
                     std::uint32_t n_rows,
                     std::uint32_t n,
                     std::uint32_t width,
                     std::uint32_t* out);
  // Rows from which `linear` wants x_tiles, of dense and of quantized weights. pack_tiles puts one
  // padded row of x, rounded to bf16, into its place in them. Null: never.
  std::uint32_t fewest_tile_rows, fewest_quantized_tile_rows;
  void (*pack_tiles)(const PackedLayout&, const float* x, std::size_t row, std::uint16_t* out);
  void (*group_sums)(const float* x, std::uint32_t group, std::uint32_t n_groups, float* out);
  void (*embed)(const std::uint8_t* weight,
                const PackedLayout&,
                std::uint32_t row,
                std::uint32_t n,
                float scale,
                float* out);
  void (*round_to_bf16)(const float* x, std::size_t n, float* out);  // as f32 values
  // Likewise, then each group to the layout's grid.
  void (*round_to_grid)(const PackedLayout&, const float* x, std::uint32_t n_groups, float* out);
  void (*store_bf16)(const float* x, std::size_t n, std::uint16_t* out);
  // (query, head) pairs that best walk keys of bf16 together: kChunkQueries to kTileQueries.
  std::uint32_t attention_pairs;
  void (*attention)(const AttentionJob&, const AttentionItem&, float* scratch);
  // The item's output from all its tiles' partials, ascending.
  void (*merge_tiles)(const AttentionJob&,
                      const AttentionItem&,
                      const float* partials,
                      std::uint32_t n_tiles,
                      float* scratch);
  void (*rms_norm)(const NormJob&, std::uint32_t begin, std::uint32_t end);
  void (*layer_norm)(const NormJob&, std::uint32_t begin, std::uint32_t end);
  void (*rope)(const RopeJob&, std::uint32_t begin, std::uint32_t end);
  // By ops::Activation; alpha is clamped_swiglu's limit.
  void (*act_mul[6])(const RowsJob&, std::uint32_t begin, std::uint32_t end);
  void (*gate_rows)(const RowsJob&, std::uint32_t begin, std::uint32_t end);  // y: [n_rows, 1]
  void (*add_scaled)(const RowsJob&, std::uint32_t begin, std::uint32_t end);
  void (*scale)(const RowsJob&, std::uint32_t begin, std::uint32_t end);
  void (*exp)(const float* x, std::size_t n, float* out);
  void (*l2_norm)(const L2NormJob&, std::uint32_t begin, std::uint32_t end);
  // Channels [begin, end).
  void (*causal_conv)(const ConvJob&, const ConvItem&, std::uint32_t begin, std::uint32_t end);
  void (*delta_gates)(const DeltaGatesJob&, std::uint32_t begin, std::uint32_t end);
  void (*gated_delta)(const DeltaJob&, const DeltaItem&);
  void (*index_scores)(const IndexJob&, const IndexItem&, float* scratch);
  void (*fma_loop)(std::size_t n_rounds, float* sink);  // kFmaLoopFlop operations a round
  float (*read_loop)(const float* data, std::size_t n);
};

constexpr double kFmaLoopFlop = 12 * 16 * 2 * 100;
// The larger of what lanes and tiles need (DecodedBlock and kRowChunk sums, AmxScratch).
constexpr std::size_t kLinearScratchFloats = 40 * 1024 + std::size_t{kTileRowChunk} * kPanel;

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
const KernelTable& avx512bf16_kernels() noexcept;
bool pairs_add_in_turn() noexcept;  // whether this CPU's products of pairs do: avx512bf16 needs it
const KernelTable& amx_kernels() noexcept;
// The same kernels on tiles that AVX-512 (with VBMI and BF16) plays: for tests.
const KernelTable& emulated_amx_kernels() noexcept;
#endif

}  // namespace kvasir::backend::cpu
