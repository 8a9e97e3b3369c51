// Loops of one matrix instruction each, on registers alone: what the unit can do at best.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvasir::backend::cpu {

struct MatrixLoop {
  std::string_view name;  // "avx512-vnni int8"
  double operations = 0;  // of one round; a multiply-add is two
  bool (*is_supported)() noexcept = nullptr;
  void (*run)(std::uint64_t n_rounds, float* sink) noexcept = nullptr;  // sink: 16 floats
};

// In the order of their age. Of a loop that the CPU does not support only the name may be used.
std::span<const MatrixLoop> matrix_loops() noexcept;

}  // namespace kvasir::backend::cpu
