#include "fit/memory.h"

#include <algorithm>

#include "fit/detail/saturating.h"

namespace kvasir::fit {
namespace {

// Tokens of a layer whose blocks are held while a row of m tokens runs (FIT-4).
std::uint64_t held_tokens(const Facts& facts, const StateLayer& layer, std::uint64_t m) noexcept {
  const std::uint64_t span = std::uint64_t{layer.window} + facts.chunk + facts.block_tokens;
  return rounded_up(layer.window > 0 ? std::min(m, span) : m, facts.block_tokens);
}

std::uint64_t layer_bytes(const Facts& facts,
                          const StateLayer& layer,
                          std::uint64_t m,
                          bool is_encoded) noexcept {
  const std::uint64_t token_bytes =
      is_encoded && layer.encoded_bytes > 0 ? layer.encoded_bytes : layer.exact_bytes;
  return plus(times(token_bytes, held_tokens(facts, layer, m)), layer.constant_bytes);
}

std::uint64_t row_bytes(const Facts& facts, std::uint64_t m, bool is_encoded) noexcept {
  std::uint64_t total = 0;
  for (const StateLayer& layer : facts.state)
    total = plus(total, layer_bytes(facts, layer, m, is_encoded));
  return total;
}

// Converting goes layer by layer and lets go of the exact blocks only when the encoded ones are
// written: on top of the exact row, at most the largest encoded layer (KV-26).
std::uint64_t conversion_bytes(const Facts& facts) noexcept {
  std::uint64_t largest = 0;
  for (const StateLayer& layer : facts.state) {
    if (layer.encoded_bytes == 0) continue;
    largest =
        std::max(largest, times(layer.encoded_bytes, held_tokens(facts, layer, facts.transition)));
  }
  return largest;
}

}  // namespace

std::uint64_t kv_bytes(const Facts& facts, std::uint64_t m) noexcept {
  return row_bytes(facts, m, m >= facts.transition);
}

std::uint64_t kv_peak(const Facts& facts, std::uint64_t n) noexcept {
  if (n < facts.transition) return row_bytes(facts, n, /*is_encoded=*/false);
  const std::uint64_t encoded = row_bytes(facts, n, /*is_encoded=*/true);
  if (facts.transition == 0) return encoded;  // born encoded: nothing is converted
  const std::uint64_t exact = row_bytes(facts, facts.transition, /*is_encoded=*/false);
  return std::max(encoded, plus(exact, conversion_bytes(facts)));
}

std::uint64_t transient_bytes(const Facts& facts, std::uint64_t n) noexcept {
  return plus(times(std::min<std::uint64_t>(facts.chunk, n), facts.step_token_bytes),
              score_bytes(facts.scores, facts.attention_memory, n, facts.chunk));
}

std::uint64_t total_bytes(const Facts& facts, std::uint64_t n) noexcept {
  return plus(plus(facts.weight_bytes, facts.fixed_bytes),
              plus(kv_peak(facts, n), transient_bytes(facts, n)));
}

bool fits(const Facts& facts, std::uint64_t n, std::uint64_t usable_bytes) noexcept {
  return total_bytes(facts, n) <= usable_bytes;
}

std::uint64_t max_context(const Facts& facts, std::uint64_t usable_bytes) noexcept {
  std::uint64_t lo = 0, hi = facts.max_positions;
  if (fits(facts, hi, usable_bytes)) return hi;
  if (!fits(facts, lo, usable_bytes)) return 0;
  while (hi - lo > 1) {  // lo fits, hi does not
    const std::uint64_t middle = lo + (hi - lo) / 2;
    (fits(facts, middle, usable_bytes) ? lo : hi) = middle;
  }
  return lo;
}

std::uint64_t kv_budget(const Facts& facts, std::uint64_t usable_bytes) noexcept {
  const std::uint64_t taken =
      plus(plus(facts.weight_bytes, facts.fixed_bytes), transient_bytes(facts, facts.chunk));
  return minus(usable_bytes, taken);
}

}  // namespace kvasir::fit
