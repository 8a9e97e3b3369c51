#include "text/tokenizer/split.h"

#include <algorithm>

namespace kvasir::text::tok {
namespace {

void merge_with_previous(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
  bool was_match = false;
  for (const Stretch& s : stretches) {
    if (s.is_match && !was_match && !out.empty()) {
      out.back().end = s.range.end;
    } else {
      out.push_back(s.range);
    }
    was_match = s.is_match;
  }
}

void merge_with_next(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
  bool was_match = false;
  for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
    if (s->is_match && !was_match && !out.empty()) {
      out.back().begin = s->range.begin;
    } else {
      out.push_back(s->range);
    }
    was_match = s->is_match;
  }
  std::reverse(out.begin(), out.end());
}

void merge_alike(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
  bool was_match = false;
  for (const Stretch& s : stretches) {
    if (s.is_match == was_match && !out.empty()) {
      out.back().end = s.range.end;
    } else {
      out.push_back(s.range);
    }
    was_match = s.is_match;
  }
}

}  // namespace

void cover(const std::vector<Range>& matches,
           std::size_t n_bytes,
           bool is_inverted,
           std::vector<Stretch>& out) {
  std::size_t at = 0;
  for (const Range& m : matches) {
    if (m.begin > at) out.push_back({{at, m.begin}, is_inverted});
    out.push_back({m, !is_inverted});
    at = m.end;
  }
  if (at < n_bytes) out.push_back({{at, n_bytes}, is_inverted});
}

void append_pieces(const std::vector<Stretch>& stretches,
                   Behavior behavior,
                   std::size_t base,
                   std::vector<Range>& out) {
  const auto add = [&](const Range& r) {
    if (r.end > r.begin) out.push_back({base + r.begin, base + r.end});
  };
  if (behavior == Behavior::isolated || behavior == Behavior::removed) {
    for (const Stretch& s : stretches) {
      if (!(s.is_match && behavior == Behavior::removed)) add(s.range);
    }
    return;
  }
  std::vector<Range> merged;
  if (behavior == Behavior::merged_with_previous) merge_with_previous(stretches, merged);
  if (behavior == Behavior::merged_with_next) merge_with_next(stretches, merged);
  if (behavior == Behavior::contiguous) merge_alike(stretches, merged);
  for (const Range& r : merged) add(r);
}

}  // namespace kvasir::text::tok
