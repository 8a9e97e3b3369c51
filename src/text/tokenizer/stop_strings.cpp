#include "text/stop_strings.h"

#include <algorithm>

namespace kvasir::text {
namespace {

// Knuth, Morris, Pratt (1977): the failure function.
std::vector<std::uint32_t> borders_of(std::string_view pattern) {
  std::vector<std::uint32_t> out(pattern.size() + 1, 0);
  std::uint32_t k = 0;
  for (std::size_t i = 1; i < pattern.size(); ++i) {
    while (k > 0 && pattern[i] != pattern[k]) k = out[k];
    if (pattern[i] == pattern[k]) ++k;
    out[i + 1] = k;
  }
  return out;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) patterns_.push_back({borders_of(stop), 0});
}

Result<StopMatcher> StopMatcher::make(std::vector<std::string> stops) {
  if (stops.size() > kMaxStopStrings) {
    return invalid("stop: at most " + std::to_string(kMaxStopStrings) + " strings");
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kMaxStopStringBytes) {
      return invalid("stop: each string must have 1 to " + std::to_string(kMaxStopStringBytes) +
                     " bytes");
    }
  }
  return StopMatcher(std::move(stops));
}

StopMatcher::Step StopMatcher::push(std::string_view text) {
  Step step;
  step.is_matched = is_matched();
  if (step.is_matched) return step;
  held_.reserve(held_.size() + text.size());
  for (const char c : text) {
    held_ += c;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      const std::string& stop = stops_[i];
      auto& [borders, n] = patterns_[i];
      while (n > 0 && stop[n] != c) n = borders[n];
      if (stop[n] == c) ++n;
      const bool is_longer =
          matched_ < 0 || stop.size() > stops_[static_cast<std::size_t>(matched_)].size();
      if (n == stop.size() && is_longer) matched_ = static_cast<int>(i);
    }
    if (matched_ < 0) continue;
    step.text = held_.substr(0, held_.size() - matched().size());
    held_.clear();
    step.is_matched = true;
    return step;
  }
  std::uint32_t n_kept = 0;
  for (const Pattern& p : patterns_) n_kept = std::max(n_kept, p.n_matched);
  step.text = held_.substr(0, held_.size() - n_kept);
  held_.erase(0, held_.size() - n_kept);
  return step;
}

std::string StopMatcher::finish() {
  std::string out;
  out.swap(held_);
  for (Pattern& p : patterns_) p.n_matched = 0;
  return out;
}

}  // namespace kvasir::text
