// The integers that IQ4_NL and IQ4_XS choose from.
#pragma once

#include <array>
#include <cstdint>

#include "codec/detail/block_bytes.h"

namespace kvasir::codec {

inline constexpr std::array<std::int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace kvasir::codec
