// Products by whole warpgroups (sm_90a): the same chains as device/product.h, several weights of
// one input in one launch, up to 64 rows a column of blocks.
#pragma once

#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/weights.h"

namespace kvasir::backend::cuda {

constexpr std::uint32_t kMaxWideParts = 4;

constexpr std::uint32_t kUnroundedRows = 2;  // rounded where they are multiplied

struct WidePart {
  const void* data;   // as Weight's
  const float* bias;  // [n_out] or null
  std::uint32_t n_out;
  std::uint32_t first_tile;  // of all parts' tiles in order
  std::uint32_t out_column, pad;
};

struct WideArgs {
  // Of one k, code, scale kind, group and offset. Gated: gate and up, of one n_out.
  WidePart parts[kMaxWideParts];
  Weight format;        // what all parts share; data and n_out are not read
  const void* x;        // as launch_convert_wide lays rows out; or null, and
  const float* x_rows;  // at most kUnroundedRows rows, x_stride elements apart, of whole 16 bytes
  std::size_t x_stride;
  float* out;  // null: copy alone
  std::size_t out_stride;
  Bf16Copy copy;
  std::uint32_t n_rows, n_parts;
  std::uint32_t is_gated;  // out = act(gate) ⊙ up
  Act activation;
  float limit;
  // Chosen by launch_wide: tiles of 16 rows of weights, of one pass, and slots.
  std::uint32_t n_tiles, n_passes, pass_tiles, n_slots, n_sms;
  std::uint32_t is_spread, pad;  // half a tile a warp
};

// Rows of x in a tile.
constexpr std::uint32_t wide_rows(std::uint32_t n_rows) {
  return n_rows <= 8 ? 8 : n_rows <= 16 ? 16 : 64;
}

// Whether this build and the device have them.
bool has_wide_products();
void launch_wide(Queue& queue, WideArgs args);

// One file each.
void launch_wide_dense(Queue& queue, const WideArgs& args);
void launch_wide_dense_rows(Queue& queue, WideArgs args);  // more than 16 rows
// Up to 8 rows and blocks of many tiles: whether it served.
bool launch_mma_nibbles(Queue& queue, const WideArgs& args);
void launch_wide_nibbles(Queue& queue, const WideArgs& args);
void launch_wide_bytes(Queue& queue, const WideArgs& args);

}  // namespace kvasir::backend::cuda
