// Second stage: stop strings, on decoded text outside reasoning (TXT-60, 61). Special tokens have
// no text: a stop string doesn't reach across one that is a marker.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/stop_strings.h"

namespace kvasir::text::out {

class StopGate {
 public:
  explicit StopGate(StopMatcher matcher) : matcher_(std::move(matcher)) {}

  // Tagged text in, tagged text that is certain out. After a match: nothing.
  std::string push(std::string_view tagged);
  std::string flush() { return is_matched() ? std::string() : matcher_.finish(); }

  bool is_matched() const { return matcher_.is_matched(); }
  std::optional<std::string> matched() const;

 private:
  StopMatcher matcher_;
};

}  // namespace kvasir::text::out
