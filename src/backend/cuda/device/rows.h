// Rows on their way into and out of products: rounding x, decoding weights, biases, embeddings.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"
#include "backend/cuda/device/weights.h"

namespace kvasir::backend::cuda {

struct ConvertArgs {  // out[r, 0 … k) = bf16(x[r]), zeros past n_cols
  ConstMat x;
  void* out;        // bf16 [n_rows, k]
  std::uint32_t k;  // a multiple of 8
  std::uint32_t tile_rows;
};
void launch_convert_rows(Queue& queue, const ConvertArgs& args);
// The same as tiles, of tile_rows rows each: [tile][chunk of 128][tile_rows][136], zeros where x
// has nothing; the last 8 of 136 keep rows in different banks. An even number of chunks.
constexpr std::uint32_t kTiledRow = 136;
__host__ __device__ constexpr std::uint32_t tiled_chunks(std::uint32_t k) {
  return (k + 255) / 256 * 2;
}
void launch_convert_tiles(Queue& queue, const ConvertArgs& args, std::uint32_t tile_rows);

// x as wide products read it (device/wide.h), in tiles of tile_rows rows: [tile][64 columns of k]
// [tile_rows][64], the 16-byte pieces of a row at piece ^ row % 8; k a multiple of 128. Rows of
// f32, or bf16 rows [n_rows, x.stride].
struct ConvertWideArgs {
  ConstMat x;
  const void* rounded;  // not null: instead of x.data
  void* out;
  std::uint32_t k, tile_rows;
};
void launch_convert_wide(Queue& queue, const ConvertWideArgs& args);

struct DecodeArgs {  // outputs [first, first + n) of a quantized weight as bf16 [n, weight.k]
  Weight weight;
  void* out;
  std::uint32_t first, n;  // first: a multiple of 16
};
void launch_decode(Queue& queue, const DecodeArgs& args);

struct AddBiasArgs {  // out[r, c] += bias[c]
  Mat out;
  const float* bias;
};
void launch_add_bias(Queue& queue, const AddBiasArgs& args);

// out[t] = table[tokens[t]] · scale, decoded in f32. A token with the highest bit set is
// picked[its other bits]; where that is none, 0.
struct EmbedRowsArgs {
  Weight table;
  const std::uint32_t* tokens;
  const std::uint32_t* picked;
  Mat out;
  float scale;
  std::uint32_t pad;
};
void launch_embed(Queue& queue, const EmbedRowsArgs& args);

struct NoiseArgs {  // n numbers of (−1, 1), the same every time
  float* out;
  std::size_t n;
};
void launch_noise(Queue& queue, const NoiseArgs& args);

struct CompareArgs {  // *n_different += how many of the elements differ in their bits
  ConstMat a, b;
  std::uint32_t* n_different;
};
void launch_compare(Queue& queue, const CompareArgs& args);

}  // namespace kvasir::backend::cuda
