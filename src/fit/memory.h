// The memory model (spec FIT, 1 and 2): bytes at a context of n tokens, whether they fit, and the
// longest context that does. Exactly these functions answer `kvasir fit`, admission and the server.
// Sums that would overflow stay at the largest number. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "fit/facts.h"

namespace kvasir::fit {

// State of one row of m tokens at rest: exact below T, encoded from T on, in whole blocks (FIT-4).
std::uint64_t kv_bytes(const Facts& facts, std::uint64_t m) noexcept;
// Most that a row holds at any time until it has n tokens, with the layer that is being converted
// at T held in both forms (FIT-5). Never falls as n grows.
std::uint64_t kv_peak(const Facts& facts, std::uint64_t n) noexcept;
// Activations and scores of one step at n tokens (FIT-6).
std::uint64_t transient_bytes(const Facts& facts, std::uint64_t n) noexcept;
// FIT-2. Never falls as n grows.
std::uint64_t total_bytes(const Facts& facts, std::uint64_t n) noexcept;
bool fits(const Facts& facts, std::uint64_t n, std::uint64_t usable_bytes) noexcept;
// The largest n ≤ max_positions that fits; 0 when none does, not even an empty one (FIT-11).
std::uint64_t max_context(const Facts& facts, std::uint64_t usable_bytes) noexcept;
// What is left for the pool of KV blocks, which rows and cached prefixes share (FIT-9).
std::uint64_t kv_budget(const Facts& facts, std::uint64_t usable_bytes) noexcept;

}  // namespace kvasir::fit
