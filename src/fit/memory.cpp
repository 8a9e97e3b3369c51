#include "fit/memory.h"

#include <algorithm>

#include "fit/detail/saturating.h"
#include "kv/list.h"

namespace kvasir::fit {
namespace {

// Tokens of a layer whose blocks are held while a row of m tokens runs (FIT-4), as the store's
// layouts count them.
std::uint64_t held_tokens(const Facts& facts, const StateLayer& layer, std::uint64_t m) noexcept {
  const kv::KvLayoutOps* layout = kv::find_layout({.window = layer.window});
  return times(layout->projected_blocks(layer.window, m, facts.chunk, facts.block_tokens),
               facts.block_tokens);
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

std::uint64_t kv_needed(const Facts& facts, std::uint64_t n) {
  const std::uint64_t held = kv_peak(facts, n);
  return facts.budget_for ? std::max(held, facts.budget_for(n)) : held;
}

std::uint64_t total_bytes(const Facts& facts, std::uint64_t n) {
  return plus(plus(facts.weight_bytes, facts.fixed_bytes),
              plus(kv_needed(facts, n), transient_bytes(facts, n)));
}

bool fits(const Facts& facts, std::uint64_t n, std::uint64_t usable_bytes) {
  const std::uint64_t kv = kv_needed(facts, n);
  const std::uint64_t held =
      plus(plus(facts.weight_bytes, facts.fixed_bytes),
           plus(kv, transient_bytes(facts, std::max<std::uint64_t>(n, facts.chunk))));
  return held <= usable_bytes && kv <= kv_budget(facts, usable_bytes);
}

std::uint64_t max_context(const Facts& facts, std::uint64_t usable_bytes) {
  std::uint64_t lo = 0, hi = facts.max_positions;
  if (fits(facts, hi, usable_bytes)) return hi;
  if (!fits(facts, lo, usable_bytes)) return 0;
  while (hi - lo > 1) {  // lo fits, hi does not
    const std::uint64_t middle = lo + (hi - lo) / 2;
    (fits(facts, middle, usable_bytes) ? lo : hi) = middle;
  }
  return lo;
}

std::uint64_t left_for_kv(const Facts& facts, std::uint64_t usable_bytes) noexcept {
  const std::uint64_t taken =
      plus(plus(facts.weight_bytes, facts.fixed_bytes), transient_bytes(facts, facts.chunk));
  return minus(usable_bytes, taken);
}

std::uint64_t kv_budget(const Facts& facts, std::uint64_t usable_bytes) noexcept {
  return facts.kv_budget_bytes > 0 ? facts.kv_budget_bytes : left_for_kv(facts, usable_bytes);
}

std::uint64_t full_bytes(const Facts& facts, std::uint64_t usable_bytes) noexcept {
  return plus(plus(facts.weight_bytes, facts.fixed_bytes),
              plus(kv_budget(facts, usable_bytes), transient_bytes(facts, facts.chunk)));
}

}  // namespace kvasir::fit
