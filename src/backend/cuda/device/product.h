// Products of packed weights with the rows of a step: out[t, o] = Σ_k w[o, k] · x[t, k] + bias[o].
// bf16 and quantized weights: one ascending chain of mma.m16n8k16 over the whole K for every
// output, whatever the number of rows (docs/numerics.md). f32 weights: a fixed order of f32 fma.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/weights.h"

namespace kvasir::backend::cuda {

// Up to a few consecutive places of one expert's list, which one column of blocks serves.
struct ExpertItem {
  std::uint32_t expert, first, n_rows, pad;
};

// Many weights of one shape in one launch. A mixture's experts: items say which rows each takes.
// Heads: items null, every weight takes all rows, head h columns h · x_step … of x.
struct Grouped {
  const Weight* weights;       // [n_experts]; null: not grouped
  const float* const* biases;  // null, or [n_experts] of null or [n_out]
  const ExpertItem* items;     // [n_items]; those with no rows are skipped
  // [n_places]: the token · top_k + choice at a place; null: x has a row a place.
  const std::uint32_t* slots;
  std::uint32_t top_k, n_items;  // heads: n_items of them
  std::uint32_t x_step, out_step;
};

struct ProductArgs {
  Weight weight;  // grouped: of any expert, for its shape and code
  // f32 rows; or bf16: tiles of rows_of_tile(n_rows) rows (rows.h), grouped: rows, as convert_rows
  // makes them.
  const void* x;
  std::size_t x_stride;  // of rows, elements
  std::uint32_t n_rows;  // grouped: rows of x
  std::uint32_t x_is_bf16;
  const float* bias;  // [n_out] or null
  float* out;
  std::size_t out_stride;
  Grouped grouped;
  std::uint32_t chunk_bytes;  // the largest of the weights'
  std::uint32_t n_sms;        // multiprocessors of the device
  // Of a block: tiles of 16 outputs (1, 2 or 4) and slots of its ring. 0: chosen here.
  std::uint32_t n_warps, n_slots;
};
static_assert(sizeof(ProductArgs) == 160);

// Rows that one column of blocks takes: grouped, of f32 x and of bf16 x. Rows of x are aligned to 16
// bytes, f32 ones whole 16 bytes long, bf16 ones padded with zeros to weight.k.
constexpr std::uint32_t kFewRows = 8, kManyRows = 64;
// Of x alone: at most kLeastRows as f32.
constexpr std::uint32_t kLeastRows = 2;
constexpr std::uint32_t rows_of_tile(std::uint32_t n_rows) {
  return n_rows <= 8 ? 8 : n_rows <= 16 ? 16 : n_rows <= 32 ? 32 : 64;
}

// Items: of at most kFewRows where x is f32 or the weights are, else kManyRows.
void launch_product(Queue& queue, const ProductArgs& args);
// Weights of Code::f32; x f32.
void launch_product_f32(Queue& queue, const ProductArgs& args);

}  // namespace kvasir::backend::cuda
