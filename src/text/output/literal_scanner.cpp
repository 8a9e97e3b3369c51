#include "text/output/literal_scanner.h"

#include <utility>

namespace kvasir::text::out {

LiteralScanner::LiteralScanner(std::vector<std::string> literals) : literals_(std::move(literals)) {
  for (const std::string& literal : literals_) {
    begins_[static_cast<unsigned char>(literal.front())] = true;
  }
}

LiteralScanner::Match LiteralScanner::match_at(std::size_t at) const {
  const std::string_view rest = std::string_view(buffer_).substr(at);
  Match out;
  for (std::size_t i = 0; i < literals_.size(); ++i) {
    const std::string_view literal = literals_[i];
    if (rest.starts_with(literal)) {
      if (!out.full || literal.size() > literals_[*out.full].size()) out.full = i;
    } else if (literal.starts_with(rest)) {
      out.may_grow = true;
    }
  }
  return out;
}

std::optional<LiteralScanner::Event> LiteralScanner::next(bool is_end) {
  for (std::size_t i = at_; i < buffer_.size(); ++i) {
    if (!begins_[static_cast<unsigned char>(buffer_[i])]) continue;
    const Match match = match_at(i);
    const bool waits = match.may_grow && !is_end;
    if (!waits && !match.full) continue;
    if (i > at_) {
      Event text{.hit = {}, .text = buffer_.substr(at_, i - at_)};
      at_ = i;
      return text;
    }
    if (waits) {
      buffer_.erase(0, std::exchange(at_, 0));
      return std::nullopt;
    }
    at_ += literals_[*match.full].size();
    return Event{.hit = match.full, .text = {}};
  }
  std::string rest = take_rest();
  if (rest.empty()) return std::nullopt;
  return Event{.hit = {}, .text = std::move(rest)};
}

std::string LiteralScanner::take_rest() {
  std::string out = at_ == 0 ? std::move(buffer_) : buffer_.substr(at_);
  buffer_.clear();
  at_ = 0;
  return out;
}

}  // namespace kvasir::text::out
