// How the weights of a hub folder are quantized, by its config.json: MLX's own forms (MOD-51), or a
// method of the transformers library (MOD-50, MOD-53).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "formats/detail/mlx_quantization.h"
#include "json/json.h"

namespace kvasir::formats {

enum class HubMethod : std::uint8_t { mlx, mxfp4, fp8, gptq, awq };

struct HubQuantization {
  HubMethod method = HubMethod::mlx;  // also when nothing is quantized
  MlxQuantization mlx;
  std::uint64_t group = 0;        // gptq, awq: elements that share a scale; 0: all of a row
  std::uint32_t zero_offset = 0;  // gptq: added to stored zeros

  // `quantization` (or `quantization_config`) of the text model's configuration. Another method,
  // or a variant without a reader, is refused by name.
  static Result<HubQuantization> read(const json::Value& config);
};

}  // namespace kvasir::formats
