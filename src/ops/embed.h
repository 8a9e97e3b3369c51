// embed: rows of a table. out[t] = table[tokens[t]] * scale, decoded to f32 (never rounded to
// bf16).
#pragma once

#include <cstdint>
#include <span>

#include "ops/device.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct EmbedArgs {
  std::span<const std::uint32_t> tokens;  // [n_tokens], each < table.n_out()
  const PackedMatrix* table = nullptr;    // [vocab, hidden]
  float scale = 1.0f;
  MatView out;  // [n_tokens, hidden]
};

}  // namespace kvasir::ops
