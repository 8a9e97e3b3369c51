// KvScheme: in which form a model's keys and values are kept, and from which position on (KV-1…7,
// KV-20…22). What a user asks for becomes a scheme by resolve_kv_scheme; a scheme and a model's KV
// list become one KvLayerForm a layer. Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/kv_codec.h"
#include "contract/kv_list.h"
#include "json/json.h"
#include "tensor/dtype.h"

namespace kvasir::kv {

// named: any two codecs of codec/kv/list.h.
enum class KvSchemeKind : std::uint8_t { exact, affine_uniform, affine_config, turbo, named };

// An entry of kv_config.json (KV-6). Layers that no entry names stay exact.
struct KvLayerBits {
  std::uint32_t layer = 0;  // KV-list index
  std::uint8_t bits = 8;
  std::uint16_t group = 64;
  friend bool operator==(const KvLayerBits&, const KvLayerBits&) = default;
};

inline constexpr std::uint64_t kNeverEncoded = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint32_t kFirstSpan = 512;

struct KvScheme {
  KvSchemeKind kind = KvSchemeKind::exact;
  DType type = DType::bf16;                   // the exact type: bf16, f16 or f32
  std::uint8_t bits = 8;                      // affine_uniform: 4 or 8
  std::uint16_t group = 64;                   // affine_uniform: 32, 64 or 128
  std::uint8_t k_bits = 8, v_bits = 3;        // turbo
  std::vector<KvLayerBits> layers = {};       // affine_config, by layer
  codec::KvCodec k_codec = {}, v_codec = {};  // named
  std::optional<std::uint64_t> start = {};    // unset: 5000 for affine_uniform, else 0 (KV-5)
  bool is_eager = false;                      // rows are born encoded (KV-22)
  std::uint32_t first_span = kFirstSpan;      // F of KV-20

  // T of KV-20: queries at q < T read exact keys, those at q ≥ T encoded ones.
  std::uint64_t transition() const noexcept;
  // Part of every cache identity (KV-2).
  std::string cache_key() const;
};

// How one layer is stored. A layer without an encoded form is exact for ever.
struct KvLayerForm {
  codec::KvCodec k, v;  // of the encoded form; kind exact: none
  bool has_encoded() const noexcept { return !k.is_exact(); }
  friend bool operator==(const KvLayerForm&, const KvLayerForm&) = default;
};

// One a KV-list entry. Errors name the first layer that the scheme cannot store and why, or that it
// would convert none (KV-7). Nothing is downgraded in silence.
Result<std::vector<KvLayerForm>> forms_of(const KvScheme& scheme, const KvList& list);
// Windowed layers that stay exact under turbo (KV-27).
std::uint32_t n_exact_windowed(const KvScheme& scheme, const KvList& list) noexcept;

// What was asked for (`--kv-quant`, `--quantized-kv-start`, kv_config.json).
struct KvSchemeRequest {
  std::string quant = "off";  // off | config | 4 | 8 | turbo[:kKvV] | a codec | K,V
  std::string start = {};     // empty: not given; "eager", or a number
  std::uint16_t group = 64;   // --kv-group-size
  DType type = DType::bf16;
  std::optional<std::vector<KvLayerBits>> config = {};  // the model's kv_config.json
  bool requires_config = true;  // of quant config: a model without the file is an error, not exact
};
// KV-3. Errors are its texts.
Result<KvScheme> resolve_kv_scheme(const KvSchemeRequest& request);

// kv_config.json (KV-6). Errors name the entry.
Result<std::vector<KvLayerBits>> parse_kv_config(const json::Value& file);

// `--kv-dtype`: bf16, f16 or f32.
Result<DType> parse_kv_type(std::string_view text);
// Error `kv block size must be a power of two from 8 to 512` (KV-37).
Status check_block_tokens(std::uint64_t block_tokens);

}  // namespace kvasir::kv
