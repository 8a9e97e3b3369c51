// Histogram: counts of durations in fixed buckets, as Prometheus wants them. A plain value; no
// thread rule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvasir {

struct Histogram {
  // Upper bounds in seconds; the last bucket has none.
  static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};
  std::array<std::uint64_t, kBounds.size() + 1> counts{};
  std::uint64_t n = 0;
  double sum = 0;  // seconds

  void add(double seconds) noexcept {
    std::size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++counts[bucket];
    ++n;
    sum += seconds;
  }
};

}  // namespace kvasir
