#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sampling/request_sampling.h"
#include "sampling/sampling_session.h"

// What validation accepts, a session must accept too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir;
  const auto body = json::parse({reinterpret_cast<const char*>(data), size});
  if (!body) return 0;
  for (const auto surface : {sampling::Surface::chat, sampling::Surface::completions}) {
    const auto request = sampling::parse_sampling(*body, surface, 100);
    if (!request) continue;
    const auto merged = sampling::merge_sampling({&*request, 1}, surface);
    if (!sampling::SamplingSession::make(merged.options, {100, {}, {}, 1})) __builtin_trap();
  }
  return 0;
}
