// Predicted speed (spec FIT, 3): decode against the memory's bandwidth, prefill against arithmetic
// and bandwidth, of a machine that was measured, never looked up in a table. Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "fit/facts.h"

namespace kvasir::fit {

struct MachineSpeed {
  double bytes_per_second = 0;         // streaming reads of memory
  double flops_per_second = 0;         // of the units that matrix products run on
  std::optional<double> efficiency{};  // measured share of them; else 0.82 dense, 0.76 MoE
};

// Weights read by a step of that many tokens, each at most once.
std::uint64_t weight_read_bytes(const Facts& facts, std::uint64_t step_tokens) noexcept;
// State that one token at position n reads.
std::uint64_t kv_read_bytes(const Facts& facts, std::uint64_t n) noexcept;

// Tokens a second of `batch` rows together, each with n tokens of context, one a step (FIT-14,
// FIT-17). 0 when the machine's speed is not known.
double predicted_decode_tps(const Facts& facts,
                            const MachineSpeed& machine,
                            std::uint64_t n,
                            std::uint64_t batch = 1) noexcept;
// Of a prompt of n tokens fed in chunks, tokens a second on average (FIT-15).
double predicted_prefill_tps(const Facts& facts,
                             const MachineSpeed& machine,
                             std::uint64_t n) noexcept;

}  // namespace kvasir::fit
