// One-line human logs on stderr, in front of the logging library. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvasir::log {

enum class Level : std::uint8_t { debug, info, warning, error, off };

void set_level(Level level);
void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

}  // namespace kvasir::log
