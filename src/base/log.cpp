#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace kvasir::log {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "kvasir", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S %^%l%$ %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err,
                                                   spdlog::level::off};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void debug(std::string_view message) { logger().debug(message); }
void info(std::string_view message) { logger().info(message); }
void warning(std::string_view message) { logger().warn(message); }
void error(std::string_view message) { logger().error(message); }

}  // namespace kvasir::log
