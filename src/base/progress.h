// Progress of long work (load, repack, prefill), reported to whoever shows it. Called on the thread
// that does the work.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace kvasir {

struct Progress {
  std::string_view stage;  // "repacking weights"
  std::uint64_t done = 0;
  std::uint64_t total = 0;  // same unit as done; bytes or tokens
};

using ProgressSink = std::function<void(const Progress&)>;  // empty = nobody looks

}  // namespace kvasir
