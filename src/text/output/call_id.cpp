#include "text/output/call_id.h"

#include "base/philox.h"

namespace kvasir::text::out {

std::string call_id(std::uint64_t seed,
                    std::uint32_t index,
                    std::string_view prefix,
                    std::size_t n_characters) {
  constexpr std::string_view kCharacters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string out(prefix);
  PhiloxWords words{};
  for (std::size_t i = 0; i < n_characters; ++i) {
    if (i % 4 == 0) {
      words =
          philox4x32({static_cast<std::uint32_t>(i / 4), index, 0x63616C6Cu, 0},
                     {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    }
    const std::uint64_t scaled = std::uint64_t{words[i % 4]} * kCharacters.size();
    out += kCharacters[static_cast<std::size_t>(scaled >> 32)];
  }
  return out;
}

}  // namespace kvasir::text::out
