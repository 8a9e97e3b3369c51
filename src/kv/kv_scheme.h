// KvScheme: which form a layer's keys and values are stored in, and the names that identity is
// built from (KV-1, KV-2, KV-36). Plain values. Only the exact kind exists; an encoding kind adds
// its fields and key here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace kvasir::kv {

struct KvScheme {
  DType type = DType::bf16;       // the exact type: bf16 or f32
  std::string cache_key() const;  // part of every cache identity (KV-2)
};

// `--kv-dtype`: bf16, f16 or f32.
Result<DType> parse_kv_type(std::string_view text);
// Error `kv block size must be a power of two from 8 to 512` (KV-37).
Status check_block_tokens(std::uint64_t block_tokens);

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
