// How far two models' next-token distributions are apart over the same text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir::verify {

struct Tally {
  std::uint64_t n = 0, n_same_top = 0;
  double kl_sum = 0, kl_max = 0;

  // Logits of n_positions positions: p of the reference, q of what is compared with it.
  void add(std::span<const float> p, std::span<const float> q, std::size_t n_positions);
  // Mean KL(p || q) in nats, largest, share of positions with the same most likely token,
  // positions.
  std::string columns() const;
};

// The texts, one after another, as a model's tokens: at most `most` of them. invalid_argument:
// fewer than `least`.
Result<std::vector<TokenId>> read_tokens(const std::filesystem::path& model,
                                         std::span<const std::filesystem::path> texts,
                                         std::size_t most,
                                         std::size_t least);

}  // namespace kvasir::verify
