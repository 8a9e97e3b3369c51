// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): a
// counter-based generator. Pure function; a draw depends on (key, counter) only, so batching,
// chunking and rollback cannot move it (SAMP-20).
#pragma once

#include <array>
#include <cstdint>

namespace kvasir {

using PhiloxWords = std::array<std::uint32_t, 4>;

constexpr PhiloxWords philox4x32(PhiloxWords counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * counter[0];
    const std::uint64_t b = 0xCD9E8D57ull * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

}  // namespace kvasir
