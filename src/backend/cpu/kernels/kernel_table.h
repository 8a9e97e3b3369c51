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
constexpr std::uint32_t kRowChunk = 256;     // rows that share one decoding of a panel
constexpr std::uint32_t kDirectRows = 4;     // up to this many rows are multiplied while decoding
constexpr std::uint32_t kTileKeys = 64;      // keys of an attention tile
constexpr std::uint32_t kChunkQueries = 48;  // (query, head) pairs that walk the keys together

enum class CodeKind : std::uint8_t { bf16, f32, nibble, byte };
enum class ScaleKind : std::uint8_t { none, f32, f16, bf16 };  // none: dense

// A packed weight: panels of kPanel outputs, each a run of groups along K. A group is
// [scales][biases][codes]; dense weights have groups of one step without scales. Codes: bf16 [pair
// of k][output] dwords (even k low), nibble [8 k] [output] dwords (lowest k in the lowest bits;
// signed codes + 8), byte and f32 [k][output].
struct PackedLayout {
  CodeKind code = CodeKind::bf16;
  ScaleKind scale = ScaleKind::none;
  bool has_bias = false;
  bool is_signed = false;
  std::uint32_t group = 0;  // elements of K
  std::uint32_t n_groups = 0;
  std::size_t scales_bytes = 0;  // of one group's scales (and of its biases)
  std::size_t group_bytes = 0;
  std::size_t panel_bytes = 0;
};

struct LinearJob {
  const std::uint8_t* weight;
  PackedLayout layout;
  const float* x;  // [n_rows, group * n_groups], rounded as the weight asks, padded with zeros
  std::size_t x_stride;
  const float* group_sums;  // [n_rows, n_groups] when the layout has biases
  std::uint32_t n_rows;
  const float* bias;  // [n_out] or null
  float* out;
  std::size_t out_stride;
  std::uint32_t n_out;
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
};

// Consecutive queries of one row on one kv head.
struct AttentionItem {
  const std::uint32_t* blocks;
  std::uint32_t position;   // of the first query
  std::uint32_t n_queries;  // n_queries * queries_per_kv <= max(kChunkQueries, queries_per_kv)
  std::uint32_t token;      // index of the first query in q and out
  std::uint32_t kv_head;
};

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
  std::uint32_t n_cols, group;
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

struct KernelTable {
  const char* name;
  // Panels [panel_begin, panel_end) of rows [row_begin, row_end). scratch: linear_scratch_floats.
  void (*linear)(const LinearJob&,
                 std::uint32_t panel_begin,
                 std::uint32_t panel_end,
                 std::uint32_t row_begin,
                 std::uint32_t row_end,
                 float* scratch);
  void (*group_sums)(const float* x, std::uint32_t group, std::uint32_t n_groups, float* out);
  void (*embed)(const std::uint8_t* weight,
                const PackedLayout&,
                std::uint32_t row,
                std::uint32_t n,
                float scale,
                float* out);
  void (*round_to_bf16)(const float* x, std::size_t n, float* out);  // as f32 values
  void (*store_bf16)(const float* x, std::size_t n, std::uint16_t* out);
  void (*attention)(const AttentionJob&, const AttentionItem&, float* scratch);
  void (*rms_norm)(const NormJob&, std::uint32_t begin, std::uint32_t end);
  void (*rope)(const RopeJob&, std::uint32_t begin, std::uint32_t end);
  void (*act_mul[3])(const RowsJob&, std::uint32_t begin, std::uint32_t end);  // by ops::Activation
  void (*add_scaled)(const RowsJob&, std::uint32_t begin, std::uint32_t end);
  void (*scale)(const RowsJob&, std::uint32_t begin, std::uint32_t end);
  void (*exp)(const float* x, std::size_t n, float* out);
  void (*fma_loop)(std::size_t n_rounds, float* sink);  // kFmaLoopFlop operations a round
  float (*read_loop)(const float* data, std::size_t n);
};

constexpr double kFmaLoopFlop = 12 * 16 * 2 * 100;
constexpr std::size_t kLinearScratchFloats =
    std::size_t{kBlockK} * kPanel + 2 * 8 * kPanel + std::size_t{kRowChunk} * kPanel;

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace kvasir::backend::cpu
