// MLX quantization of hub folders: which modules are quantized, and how their planes lie (MOD-51).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "formats/detail/opened_model.h"
#include "json/json.h"

namespace kvasir::formats {

struct MlxMode {
  std::string mode = "affine";
  std::int64_t bits = 0;
  std::int64_t group = 0;
  std::string type_name() const;  // "affine4g64", the codec's name
};

// `quantization` (or `quantization_config`) of config.json. Overrides go by the module's full path,
// prefix or not.
class MlxQuantization {
 public:
  // No quantization in the configuration → an empty one. Another method than MLX's (GPTQ, AWQ, fp8)
  // → refused by name.
  static Result<MlxQuantization> read(const json::Value& config);
  // How the module is quantized; a module without override follows the default iff its scales
  // exist.
  std::optional<MlxMode> mode_of(std::string_view canonical_module, bool has_scales) const;

 private:
  std::optional<MlxMode> default_;
  std::unordered_map<std::string, std::optional<MlxMode>> overrides_;  // nothing: left dense
};

// Planes of one module → one tensor named as the weight. weight u32 [.., out, in·bits/32], scales
// and biases
// [.., out, in/group] f16, bf16 or f32. Shapes that do not fit each other are an error; a mode
// without codec a refusal.
Result<StoredTensor> fold_planes(const MlxMode& mode,
                                 const SafeTensor& weight,
                                 const SafeTensor& scales,
                                 const SafeTensor* biases);

}  // namespace kvasir::formats
