// Sixteen f32 lanes for passes over rows of scores: one order of operations on every instruction
// set, whatever its vectors' width. For the source files of ops/ and sampling/ alone: vectors stay
// inside a file (compiled with -Wno-psabi), so their calling convention does not matter.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

// Several copies of a pass, the best chosen at load. Sanitizers do not stand the resolver that runs
// before them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__x86_64__) || \
    defined(__clang__)
#define KVASIR_CLONES
#else
#define KVASIR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#define KVASIR_INLINE [[gnu::always_inline]] inline

namespace kvasir::ops::lanes {

constexpr std::size_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using HalfFloats = float __attribute__((vector_size(32)));
using Doubles = double __attribute__((vector_size(64)));  // eight

KVASIR_INLINE Floats splat(float v) { return Floats{} + v; }

KVASIR_INLINE Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
KVASIR_INLINE void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

// The sixteen scores from p, of which only n exist; the others are excluded.
KVASIR_INLINE Floats load_some(const float* p, std::size_t n) {
  if (n >= kLanes) return load(p);
  Floats v = splat(-std::numeric_limits<float>::infinity());
  std::memcpy(&v, p, n * sizeof(float));
  return v;
}
KVASIR_INLINE bool any(Ints v) {
  const auto q = std::bit_cast<std::array<std::uint64_t, 8>>(v);
  return ((q[0] | q[1]) | (q[2] | q[3]) | (q[4] | q[5]) | (q[6] | q[7])) != 0;
}

KVASIR_INLINE float max_lane(Floats v) {
  float m = v[0];
  for (std::size_t l = 1; l < kLanes; ++l) m = v[l] > m ? v[l] : m;
  return m;
}

}  // namespace kvasir::ops::lanes
