// Shapes by name: the published config.json of models, without their weights.
#pragma once

#include <span>
#include <string_view>

namespace kvasir::synth {

struct Shape {
  std::string_view name;
  std::string_view config;  // JSON
};

std::span<const Shape> shapes() noexcept;

}  // namespace kvasir::synth
