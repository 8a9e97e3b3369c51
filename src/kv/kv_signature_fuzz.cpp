// Signatures come from disk entries, which are untrusted (CACHE-42).
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kv/kv_signature.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)kvasir::kv::parse_signature({reinterpret_cast<const char*>(data), size}).has_value();
  return 0;
}
