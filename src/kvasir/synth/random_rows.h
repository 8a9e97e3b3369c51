// The random numbers of a checkpoint: element i of row r of a tensor is a function of the seed, the
// tensor's name, r and i, whoever asks in whatever order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvasir::synth {

struct Spread {
  float mean = 0.0f;
  float deviation = 0.0f;
};

// What keeps activations about as large as a trained model's, so that they stay finite at any
// depth: matrices pass the variance of their input on; norms and scales are about one; biases,
// decays and the like about zero. n_in: elements of a row.
Spread spread_of(std::string_view name, bool is_matrix, std::uint64_t n_in) noexcept;

class RandomRows {
 public:
  RandomRows(std::uint64_t seed, std::string_view name, Spread spread) noexcept;
  // Nearly normal: a sum of four uniform bytes (at most 3.45 deviations from the mean).
  void fill(std::uint32_t row, std::span<float> out) const noexcept;

 private:
  std::uint64_t seed_, name_;
  Spread spread_;
};

}  // namespace kvasir::synth
