// Rotary positions: from config.json (any dialect, MOD-4) to frequencies, and from frequencies to
// tables (MOD-2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/decoder_config.h"
#include "model/detail/config_reader.h"
#include "ops/device.h"
#include "tensor/buffer.h"

namespace kvasir::model {

inline constexpr std::string_view kFullAttention = "full_attention",
                                  kSlidingAttention = "sliding_attention";

struct RopeDefaults {  // what a family means when its config.json is silent
  double theta = 10000.0;
  double partial_rotary = 1.0;  // of head_dim
  bool interleaved = false;
  // Sliding layers have a plain rope of their own with this theta, whatever the members that
  // describe the others' say; only an entry of their type in rope_parameters overrules it.
  std::optional<double> sliding_theta = {};
};

struct RopeReading {
  RopeSpec spec;
  std::string choice;               // "longrope:long" or "longrope:short", else empty
  std::uint32_t max_positions = 0;  // what this rope allows; dynamic: the original length
  double score_scale = 1.0;         // yarn's mscale², on the scores of latent attention (MOD-35)
};

// `layer_type` selects an entry when rope_parameters has one per type. Bad input is refused through
// `config`.
RopeReading read_rope(const ConfigReader& config,
                      std::string_view layer_type,
                      std::uint32_t head_dim,
                      RopeDefaults defaults);

// f32 tables from f64 angles, for positions [0, n_positions).
struct RopeTable {
  Buffer memory;               // cos, then sin
  const float* cos = nullptr;  // [n_positions, n_pairs]
  const float* sin = nullptr;
  std::uint32_t n_pairs = 0;
  bool interleaved = false;
};

Result<RopeTable> build_rope_table(ops::Device& device,
                                   const RopeSpec& spec,
                                   std::uint32_t n_positions);

}  // namespace kvasir::model
