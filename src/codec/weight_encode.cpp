#include "codec/weight_encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "codec/kv/affine.h"

namespace kvasir::codec {
namespace {

using Encoder = void (*)(const WeightTypeInfo&, const float* x, std::size_t n, const EncodedRow&);

constexpr std::size_t kBlock = 32;  // of q8_0, q4_0, q4_1

void store_half(std::byte* to, float value) noexcept {
  const std::uint16_t bits = to_f16(value).bits;
  std::memcpy(to, &bits, 2);
}

void encode_f32(const WeightTypeInfo&, const float* x, std::size_t n, const EncodedRow& to) {
  std::memcpy(to.codes, x, n * sizeof(float));
}
void encode_f16(const WeightTypeInfo&, const float* x, std::size_t n, const EncodedRow& to) {
  for (std::size_t i = 0; i < n; ++i) store_half(to.codes + 2 * i, x[i]);
}
void encode_bf16(const WeightTypeInfo&, const float* x, std::size_t n, const EncodedRow& to) {
  for (std::size_t i = 0; i < n; ++i) store_scale(to.codes, ScaleType::bf16, i, x[i]);
}

// Two codes a byte: element i in the low half, i + 16 in the high one.
void pack_halves(const std::array<int, kBlock>& codes, std::byte* to) noexcept {
  for (std::size_t i = 0; i < kBlock / 2; ++i)
    to[i] = static_cast<std::byte>(codes[i] | codes[i + kBlock / 2] << 4);
}

// The element of largest magnitude falls on an end of the range.
void encode_q8_0(const WeightTypeInfo& type, const float* x, std::size_t n, const EncodedRow& to) {
  for (std::size_t b = 0; b < n / kBlock; ++b, x += kBlock) {
    const GroupRange range = range_of(x, kBlock);
    const float scale = std::max(range.largest, -range.smallest) / 127.0f;
    const float steps = scale > 0.0f ? 1.0f / scale : 0.0f;
    std::byte* const block = to.codes + b * type.block_bytes;
    store_half(block, scale);
    for (std::size_t i = 0; i < kBlock; ++i)
      block[2 + i] = static_cast<std::byte>(round_within(x[i] * steps, -127.0f, 127.0f));
  }
}

// Codes -8 … 7: the scale has the sign that puts the element of largest magnitude on -8.
void encode_q4_0(const WeightTypeInfo& type, const float* x, std::size_t n, const EncodedRow& to) {
  for (std::size_t b = 0; b < n / kBlock; ++b, x += kBlock) {
    const GroupRange range = range_of(x, kBlock);
    const bool is_high = range.largest > -range.smallest;
    const float scale = (is_high ? range.largest : range.smallest) / -8.0f;
    const float steps = scale != 0.0f ? 1.0f / scale : 0.0f;
    std::array<int, kBlock> codes;
    for (std::size_t i = 0; i < kBlock; ++i) codes[i] = round_within(x[i] * steps, -8.0f, 7.0f) + 8;
    std::byte* const block = to.codes + b * type.block_bytes;
    store_half(block, scale);
    pack_halves(codes, block + 2);
  }
}

void encode_q4_1(const WeightTypeInfo& type, const float* x, std::size_t n, const EncodedRow& to) {
  for (std::size_t b = 0; b < n / kBlock; ++b, x += kBlock) {
    const GroupRange range = range_of(x, kBlock);
    const float scale = (range.largest - range.smallest) / 15.0f;
    const float steps = scale > 0.0f ? 1.0f / scale : 0.0f;
    std::array<int, kBlock> codes;
    for (std::size_t i = 0; i < kBlock; ++i)
      codes[i] = round_within((x[i] - range.smallest) * steps, 0.0f, 15.0f);
    std::byte* const block = to.codes + b * type.block_bytes;
    store_half(block, scale);
    store_half(block + 2, range.smallest);
    pack_halves(codes, block + 4);
  }
}

void encode_affine(const WeightTypeInfo& type,
                   const float* x,
                   std::size_t n,
                   const EncodedRow& to) {
  const KvCodec codec = affine_kv(type.bits, static_cast<int>(type.group), ScaleType::bf16);
  KvAffine::encode(codec, x, static_cast<std::uint32_t>(n), {{to.codes, to.scales, to.biases}});
}

struct Entry {
  std::string_view name;
  Encoder encode;
};
constexpr Entry kEncoders[] = {
    {"f32", encode_f32},           {"f16", encode_f16},           {"bf16", encode_bf16},
    {"q8_0", encode_q8_0},         {"q4_0", encode_q4_0},         {"q4_1", encode_q4_1},
    {"affine4g32", encode_affine}, {"affine4g64", encode_affine}, {"affine4g128", encode_affine},
    {"affine8g32", encode_affine}, {"affine8g64", encode_affine}, {"affine8g128", encode_affine}};

Encoder encoder_of(std::string_view name) noexcept {
  for (const Entry& entry : kEncoders) {
    if (entry.name == name) return entry.encode;
  }
  return nullptr;
}

}  // namespace

bool can_encode(WeightType type) noexcept { return encoder_of(info(type).name) != nullptr; }

void encode_row(WeightType type, const float* x, std::size_t n, const EncodedRow& to) noexcept {
  const WeightTypeInfo& facts = info(type);
  const Encoder encode = encoder_of(facts.name);
  KVASIR_CHECK(encode != nullptr) << facts.name;
  encode(facts, x, n, to);
}

}  // namespace kvasir::codec
