// The ids of tool calls (TXT-43).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir::text::out {

// `prefix` and n random base-62 characters; a function of (seed, index).
std::string call_id(std::uint64_t seed,
                    std::uint32_t index,
                    std::string_view prefix,
                    std::size_t n_characters);

}  // namespace kvasir::text::out
