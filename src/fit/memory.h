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
// What the KV budget must be for one row of n tokens. Never falls as n grows.
std::uint64_t kv_needed(const Facts& facts, std::uint64_t n);
// Activations and scores of one step at n tokens (FIT-6).
std::uint64_t transient_bytes(const Facts& facts, std::uint64_t n) noexcept;
// FIT-2, of one row alone. Never falls as n grows.
std::uint64_t total_bytes(const Facts& facts, std::uint64_t n);
// The total, and the row in the KV budget: a step's memory is taken whole, however short the row.
bool fits(const Facts& facts, std::uint64_t n, std::uint64_t usable_bytes);
// The largest n ≤ max_positions that fits; 0 when none does, not even an empty one (FIT-11).
std::uint64_t max_context(const Facts& facts, std::uint64_t usable_bytes);
// The pool of KV blocks, which rows and cached prefixes share: as asked for, or what is left
// (FIT-9).
std::uint64_t kv_budget(const Facts& facts, std::uint64_t usable_bytes) noexcept;
std::uint64_t left_for_kv(const Facts& facts, std::uint64_t usable_bytes) noexcept;
// Everything, with the whole pool in use: what the process grows to.
std::uint64_t full_bytes(const Facts& facts, std::uint64_t usable_bytes) noexcept;

}  // namespace kvasir::fit
