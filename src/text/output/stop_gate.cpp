#include "text/output/stop_gate.h"

#include <algorithm>

#include "text/output/markers.h"

namespace kvasir::text::out {

std::string StopGate::push(std::string_view tagged) {
  std::string out;
  for (std::size_t at = 0; at < tagged.size() && !is_matched();) {
    const std::size_t tag = std::min(tagged.find(kTag, at), tagged.size());
    if (tag > at) out += matcher_.push(tagged.substr(at, tag - at)).text;
    if (is_matched()) break;
    if (tag < tagged.size()) {
      out += matcher_.finish();
      out += tagged.substr(tag, kTagBytes);
    }
    at = tag + kTagBytes;
  }
  return out;
}

std::optional<std::string> StopGate::matched() const {
  if (!is_matched()) return std::nullopt;
  return std::string(matcher_.matched());
}

}  // namespace kvasir::text::out
