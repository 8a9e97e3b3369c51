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
  std::string type_name() const;  // "affine4g64", "mxfp4g32": the codec's name
};

// `quantization` (or `quantization_config`) of config.json. Overrides go by the module's full path,
// prefix or not. One that is made without settings quantizes nothing.
class MlxQuantization {
 public:
  static Result<MlxQuantization> read(const json::Value& settings);
  // How the module is quantized; a module without override follows the default iff its scales
  // exist.
  std::optional<MlxMode> mode_of(std::string_view canonical_module, bool has_scales) const;

 private:
  std::optional<MlxMode> default_;
  std::unordered_map<std::string, std::optional<MlxMode>> overrides_;  // nothing: left dense
};

struct MlxPlanes {
  const SafeTensor* weight = nullptr;
  const SafeTensor* scales = nullptr;
  const SafeTensor* biases = nullptr;        // affine
  const SafeTensor* global_scale = nullptr;  // nvfp4, may be absent
};

// Planes of one module → one tensor named as the weight. weight u32 [.., out, in·bits/32]; affine:
// scales and biases [.., out, in/group] f16, bf16 or f32; mxfp4, mxfp8, nvfp4: scales u8 of that
// shape. The global scale is the largest magnitude that the weight was quantized for: 448 · 6 of
// the units that scales and elements are in. Shapes that do not fit each other are an error; a mode
// without codec a refusal.
Result<StoredTensor> fold_planes(const MlxMode& mode, const MlxPlanes& planes);

}  // namespace kvasir::formats
