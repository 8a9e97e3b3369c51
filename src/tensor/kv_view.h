// What kernels see of the KV state: one KvLayerView per KV-list entry, one KvRowView per row of the
// step. Made by kv/ for one step, never outlives it (KV-45). Planes are
// [n_blocks][n_kv_heads][block_tokens][head_dim], so one head's tokens of a block are contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "tensor/dtype.h"

namespace kvasir {

struct KvRowView {
  const BlockId* blocks = nullptr;   // blocks[p / block_tokens] holds absolute position p
  std::uint32_t first_position = 0;  // positions below it are released (windowed layers)
  std::uint32_t length = 0;       // committed positions = absolute position of the first new token
  std::uint32_t n_new = 0;        // tokens this step feeds; room for them is reserved
  std::uint32_t first_token = 0;  // index of the first of them in the step's flat token list
};

struct KvLayerView {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType type = DType::bf16;  // f32 or bf16, of both planes
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 0;  // a power of two, 8..512
  std::uint32_t window =
      0;  // 0: full attention; else key j is visible to query q iff q - j < window
  std::span<const KvRowView> rows;

  // Byte offset of (block, kv_head, slot) in either plane.
  std::size_t offset(BlockId block, std::uint32_t head, std::uint32_t slot) const noexcept {
    const std::size_t row = (std::size_t{block.value} * n_kv_heads + head) * block_tokens + slot;
    return row * head_dim * size_of(type);
  }
};

}  // namespace kvasir
