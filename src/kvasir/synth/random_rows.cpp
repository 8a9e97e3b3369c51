#include "kvasir/synth/random_rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/philox.h"

namespace kvasir::synth {
namespace {

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

constexpr std::uint32_t low(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) noexcept {
  return static_cast<std::uint32_t>(x >> 32);
}

// Sum of the four bytes less their mean: −510 … 510.
int centred_sum(std::uint32_t word) noexcept {
  const std::uint32_t pairs = (word & 0x00ff00ffu) + ((word >> 8) & 0x00ff00ffu);
  return static_cast<int>((pairs & 0xffffu) + (pairs >> 16)) - 510;
}
// Its standard deviation: a byte's variance is (256² − 1) / 12.
const float kSumDeviation = std::sqrt(4.0f * 65535.0f / 12.0f);

bool has(std::string_view name, std::string_view part) noexcept {
  return name.find(part) != std::string_view::npos;
}

}  // namespace

Spread spread_of(std::string_view name, bool is_matrix, std::uint64_t n_in) noexcept {
  const float passing_on = 1.0f / std::sqrt(static_cast<float>(std::max<std::uint64_t>(n_in, 1)));
  if (is_matrix) return {0.0f, passing_on};
  if (has(name, "conv") && name.ends_with(".weight")) return {0.0f, 0.5f};
  const bool is_factor = has(name, "norm") || has(name, "Norm") || has(name, "scal");
  if (is_factor && !name.ends_with(".bias")) return {1.0f, 0.05f};
  return {0.0f, 0.02f};
}

RandomRows::RandomRows(std::uint64_t seed, std::string_view name, Spread spread) noexcept
    : seed_(seed), name_(hash_of(name)), spread_(spread) {}

void RandomRows::fill(std::uint32_t row, std::span<float> out) const noexcept {
  const float scale = spread_.deviation / kSumDeviation;
  const std::array<std::uint32_t, 2> key{low(seed_), high(seed_)};
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const PhiloxWords words =
        philox4x32({static_cast<std::uint32_t>(i / 4), row, low(name_), high(name_)}, key);
    const std::size_t n = std::min<std::size_t>(4, out.size() - i);
    for (std::size_t j = 0; j < n; ++j)
      out[i + j] = spread_.mean + scale * static_cast<float>(centred_sum(words[j]));
  }
}

}  // namespace kvasir::synth
