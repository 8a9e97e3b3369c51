// embed: rows of a table. out[t] = table[tokens[t]] * scale, decoded to f32 (never rounded to
// bf16). A token may be one that an earlier `pick` leaves on the device: picked_from(r).
#pragma once

#include <cstdint>
#include <span>

#include "ops/device.h"
#include "tensor/mat_view.h"
#include "tensor/pick_row.h"

namespace kvasir::ops {

struct EmbedArgs {
  std::span<const std::uint32_t> tokens;  // [n_tokens], each < table.n_out(), or picked_from(r)
  const PackedMatrix* table = nullptr;    // [vocab, hidden]
  float scale = 1.0f;
  const std::uint32_t* picked = nullptr;  // device memory, where there are such tokens
  MatView out;                            // [n_tokens, hidden]
};

// A host backend's way to a token; kNoToken, whose row is nobody's, becomes 0.
inline std::uint32_t token_of(const EmbedArgs& a, std::size_t t) noexcept {
  const std::uint32_t token = a.tokens[t];
  if (!is_picked(token)) return token;
  const std::uint32_t picked = a.picked[row_of_picked(token)];
  return picked == kNoToken ? 0 : picked;
}

}  // namespace kvasir::ops
