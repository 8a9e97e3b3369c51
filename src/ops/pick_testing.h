// For tests of backends: rows of scores with ties, denormals and what is not finite, and what a
// device picks from them. Memory is vectors', which the device must see. Not used by the program
// itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/op_table.h"

namespace kvasir::ops::testing {

struct PickCase {
  std::uint32_t vocab = 0;
  std::vector<float> scores;  // [rows, vocab]
  std::vector<PickRow> rows = {};
};

// Rows of every kind; of each spread one, and rows that are flat, nearly flat, or broken at an end.
inline PickCase draw_pick_case(std::uint32_t vocab, std::uint32_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  PickCase out{.vocab = vocab, .scores = {}, .rows = {}};
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  for (std::uint32_t r = 0; r < 24; ++r) {
    std::vector<float> row(vocab);
    const float spread = r % 6 == 5 ? 0.0f : r % 6 == 4 ? 1e-39f : 0.3f * static_cast<float>(r % 6);
    for (float& x : row) x = spread * normal(rng);
    if (r % 4 == 1) {  // ties
      for (float& x : row) x = std::round(x);
    }
    if (r == 12) row.back() = kInfinity;
    if (r == 13) row.front() = -kInfinity;
    if (r == 14) row[vocab / 2] = std::numeric_limits<float>::quiet_NaN();
    if (r == 15) row[vocab / 3] = std::numeric_limits<float>::max();
    if (r == 16) row.front() = std::numeric_limits<float>::lowest();
    out.scores.insert(out.scores.end(), row.begin(), row.end());
    PickRow spec{.seed = rng(), .position = r % 3 ? r : rng()};
    spec.kind = r % 8 == 7 ? PickKind::none : r % 2 ? PickKind::drawn : PickKind::highest;
    constexpr float kScales[] = {1.0f, 1.4285715f, 0.5f, 1e-6f, 1e30f};
    spec.scale = kScales[r % 5];
    out.rows.push_back(spec);
  }
  return out;
}

inline std::vector<std::uint32_t> pick_with(Device& device, const PickCase& c) {
  const auto n = static_cast<std::uint32_t>(c.rows.size());
  std::vector<std::uint32_t> out(n, 7);
  device.ops().pick(
      device,
      {.scores = {c.scores.data(), n, c.vocab, c.vocab}, .rows = c.rows, .picked = out.data()});
  return out;
}

}  // namespace kvasir::ops::testing
