// KvSignature: the name of a layer's layout and codecs, by which files and factories know it
// (KV-36). Signatures come from files: reading one checks it. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::kv {

// What a signature says, e.g. `windowed(16):bf16:bf16` or `paged:affine:4:64:affine:4:64@512`.
struct KvSignature {
  std::string layout;            // paged, windowed, recurrent, latent, latent+index, mtp
  std::uint32_t window = 0;      // of windowed
  std::string k_codec, v_codec;  // of paged and windowed
  std::uint64_t transition = 0;  // the T of `@T`; 0 when absent
};
// Signatures come from files. Error `unknown KV signature: {s}`.
Result<KvSignature> parse_signature(std::string_view text);

}  // namespace kvasir::kv
