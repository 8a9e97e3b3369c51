// KV codecs: how a row, one head's vector of one token, is stored when it is not exact (KV-8…17).
// The scalar truth: backends with faster forms are tested against these functions. A codec is one
// header in kv/ with the functions of KvRowCodec and one line in kv/list.h. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/weight_codec.h"

namespace kvasir::codec {

// Which codec, with its parameters. exact: `scale_type` is the element type. affine: of scales and
// biases, which is the layer's exact type. turbo: f16.
struct KvCodec {
  std::uint8_t kind = 0;    // its place in kv/list.h; 0: exact
  std::uint8_t bits = 16;   // of a code
  std::uint16_t group = 0;  // elements of a row that share a scale
  ScaleType scale_type = ScaleType::bf16;
  bool is_exact() const noexcept { return kind == 0; }
  friend bool operator==(const KvCodec&, const KvCodec&) = default;
};

// The parts of a row, each in a plane of its own (KV-17). exact: codes only. affine: codes, scales,
// biases. turbo keys: codes, scales, zeros. turbo values: codes, scales.
enum class KvRowPart : std::uint8_t { codes, scales, offsets };
inline constexpr std::size_t kKvRowParts = 3;
struct KvRow {
  std::array<std::byte*, kKvRowParts> planes{};
};

constexpr std::size_t size_of(ScaleType type) noexcept { return type == ScaleType::f32 ? 4 : 2; }

constexpr KvCodec exact_kv(ScaleType type) noexcept {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(type));
  return {0, bits, 0, type};
}
KvCodec affine_kv(int bits, int group, ScaleType scales) noexcept;
KvCodec turbo_keys_kv(int bits) noexcept;
KvCodec turbo_values_kv(int bits) noexcept;

// Keys and values of a layer may have different codecs (KV-8); some serve one side only.
enum class KvSide : std::uint8_t { keys, values };
// Every encoded form of a side, in each of its widths and groups. exact: the layer's exact type.
std::vector<KvCodec> all_kv_codecs(KvSide side, ScaleType exact);
// The one among them whose signature_part() is the text.
std::optional<KvCodec> find_kv_codec(KvSide side, std::string_view text, ScaleType exact);

// Each of them on each side at least once: with its namesake where the other side has one.
struct KvCodecPair {
  KvCodec k, v;
};
std::vector<KvCodecPair> paired_kv_codecs(ScaleType exact);

// Whether rows of that length can be stored so (KV-7, KV-10, KV-17); the other functions ask for
// it.
bool can_store(const KvCodec& codec, std::uint32_t dim) noexcept;
// Bytes of a part of a row; 0 for one that the codec does not have.
std::size_t row_bytes(const KvCodec& codec, KvRowPart part, std::uint32_t dim) noexcept;
// "bf16", "affine:4:64", "turbo:8": its part of a signature (KV-36).
std::string signature_part(const KvCodec& codec);
// Elements that share a scale, and whether rows have the offsets part.
std::uint32_t group_of(const KvCodec& codec) noexcept;
bool has_offsets(const KvCodec& codec) noexcept;
// How stored parts read: codes as two's complement; a group's offset as the stored one times the
// scale.
bool has_signed_codes(const KvCodec& codec) noexcept;
bool has_zero_points(const KvCodec& codec) noexcept;

// x: [dim]. Equal bytes in any floating-point mode of the caller (denormals count as zero).
void encode_row(const KvCodec& codec, const float* x, std::uint32_t dim, const KvRow& to) noexcept;
void decode_row(const KvCodec& codec, const KvRow& from, std::uint32_t dim, float* out) noexcept;
// A row as products take it (docs/numerics.md): element i = codes[i] · scales[i / group] +
// offsets[i / group]. codes: [dim], integers or centroids; scales, offsets: [dim / group], offsets
// zeros where there are none.
void unpack_row(const KvCodec& codec,
                const KvRow& from,
                std::uint32_t dim,
                float* codes,
                float* scales,
                float* offsets) noexcept;

// The value of each code, ascending, of codecs with a codebook. Others: empty.
std::span<const float> centroids(const KvCodec& codec) noexcept;
// Rows of some codecs decode to rotated rows; attention sums them rotated and turns the sum back
// once (KV-16): out = InvFWHT(out) / sqrt(dim) ⊙ signs, in place. f32; f64 for the oracle.
bool is_rotated(const KvCodec& codec) noexcept;
void unrotate(float* out, std::uint32_t dim) noexcept;
void unrotate(double* out, std::uint32_t dim) noexcept;

// The rotation's signs; a file that says another id is of another codec (KV-14).
inline constexpr std::string_view kSignsId = "splitmix64-42";

}  // namespace kvasir::codec
