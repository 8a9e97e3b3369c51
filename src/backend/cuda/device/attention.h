// Attention over paged KV: parameters and launches. docs/numerics.md, "backend/cuda": keys go in
// tiles of 64 inside segments of 256, both at absolute positions; a segment's (max, sum, output)
// are its own, and segments merge in ascending order. So it is free which kernel walks which
// segments.
#pragma once

#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/kv_side.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

constexpr std::uint32_t kTile = 64, kSegment = 256;
constexpr std::uint32_t kFewTokens = 8;
constexpr std::uint32_t kLongestTensorRow = 256;  // elements of a row that tensor cores serve

// Rows of one form; rows in the other are left alone. Scores: x = s, or tanh(s · in_scale) with a
// soft cap, meet as 2^(x · out_scale).
struct AttentionParams {
  ConstMat q;
  Mat out;
  KvSide k, v;
  const KvRow* rows;
  const float* sinks;  // [n_heads] or null
  // Partial results of row, token of the row, head, and segment, counted from the row's first
  // visible one. Null: a block walks all segments of what it serves.
  float* part_out;  // [n_rows][part_tokens][n_heads][max_segments][dim]
  float2* part_ml;  // [n_rows][part_tokens][n_heads][max_segments]: max in base 2, sum
  // [blocks of a row, KV heads and pairs]: how many left theirs; the last one makes outputs of
  // them. Null: another kernel does.
  std::uint32_t* arrivals;
  std::uint32_t n_heads, n_kv_heads, dim, block_tokens, block_shift, window, max_segments;
  std::uint32_t has_softcap, is_encoded, both_ways;
  std::uint32_t rounds;  // q, p and elements are rounded to bf16
  float in_scale, out_scale;
  std::uint32_t part_tokens;
  std::uint32_t most_keys;  // > 0: a query sees so many at most: keys are numbers in its selection
  std::uint32_t is_few;     // serves rows of at most kFewTokens new tokens; 0: the others
  Bf16Copy copy;            // of outputs, by launch_attend_on_hopper and launch_attend_fresh
};

// How a step's rows become a grid; every number may be too large.
struct AttentionGrid {
  std::uint32_t n_rows, most_new;
  std::uint32_t n_splits;  // blocks that share a row's segments
  bool is_wide = false;  // a block has a multiprocessor to itself, and may bring more keys at once
};

// Whether the tensor-core kernels take rows of this shape. A layer's rows are always theirs or
// never.
bool serves_tensor_cores(const AttentionParams& params);

// Some (query, head) pairs of a KV head a block: how many, and how many such blocks a
// multiprocessor holds.
struct FewBlocks {
  std::uint32_t pairs, a_multiprocessor;
};
FewBlocks few_blocks_of(const AttentionParams& params);
void launch_attend_few(Queue& queue, const AttentionParams& params, const AttentionGrid& grid);
// The same of rows of affine codes, which launch_attend_few and few_blocks_of choose.
bool takes_packed(const AttentionParams& params);
FewBlocks packed_blocks_of(const AttentionParams& params);
void launch_attend_packed(Queue& queue, const AttentionParams& params, const AttentionGrid& grid);
// launch_query_key and the above of rows of one new token each, but for what is left in q and k;
// outputs go to p.copy too. n_splits: as the next function says, blocks of a row and KV head, a
// power of two; 0: such rows are not served.
std::uint32_t fresh_splits_of(const AttentionParams& params,
                              const QueryKeyParams& prepare,
                              std::uint32_t n_rows,
                              std::uint32_t n_multiprocessors);
void launch_attend_fresh(Queue& queue,
                         const AttentionParams& params,
                         const QueryKeyParams& prepare,
                         const AttentionGrid& grid);
// 64 such pairs a block.
void launch_attend_many(Queue& queue, const AttentionParams& params, const AttentionGrid& grid);
// The same rows and bits by wgmma, 128 pairs a block, where the GPU and the build have it.
bool serves_hopper(const AttentionParams& params);
void launch_attend_on_hopper(Queue& queue,
                             const AttentionParams& params,
                             const AttentionGrid& grid);
// Any shape, f32 arithmetic.
void launch_attend_plain(Queue& queue, const AttentionParams& params, const AttentionGrid& grid);
// Partial results to outputs.
void launch_combine(Queue& queue, const AttentionParams& params, const AttentionGrid& grid);
// Turns outputs of rotated values back (KV-16).
void launch_unrotate(Queue& queue, const AttentionParams& params, const AttentionGrid& grid);

}  // namespace kvasir::backend::cuda
