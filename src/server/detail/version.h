// The version that headers and /version show; CMake defines it from the project's.
#pragma once

#include <string_view>

namespace kvasir::server {

inline constexpr std::string_view kVersion = KVASIR_VERSION;

}  // namespace kvasir::server
