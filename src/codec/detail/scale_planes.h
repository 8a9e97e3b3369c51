// Element i of a plane of scales or biases.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

inline float scale_at(const std::byte* plane, ScaleType type, std::size_t i) noexcept {
  switch (type) {
    case ScaleType::f32:
      return f32_at(plane + 4 * i);
    case ScaleType::f16:
      return f16_at(plane + 2 * i);
    case ScaleType::bf16:
      return bf16_at(plane + 2 * i);
  }
  return 0.0f;
}

}  // namespace kvasir::codec
