#include "codec/kv_codec.h"

#include <array>

#include "base/thread_pool.h"
#include "codec/kv/list.h"

namespace kvasir::codec {
namespace {

struct Entry {
  KvSides sides;
  bool is_rotated;
  bool has_offset;
  bool has_zero_point;
  bool (*can_store)(const KvCodec&, std::uint32_t dim) noexcept;
  std::uint32_t (*group_of)(const KvCodec&) noexcept;
  bool (*is_signed)(const KvCodec&) noexcept;
  std::span<const KvVariant> (*variants)() noexcept;
  std::span<const float> (*centroids)(const KvCodec&) noexcept;
  std::size_t (*row_bytes)(const KvCodec&, KvRowPart, std::uint32_t dim) noexcept;
  std::string (*signature_part)(const KvCodec&);
  void (*encode)(const KvCodec&, const float* x, std::uint32_t dim, const KvRow&) noexcept;
  void (*decode)(const KvCodec&, const KvRow&, std::uint32_t dim, float* out) noexcept;
  void (*unpack)(const KvCodec&, const KvRow&, std::uint32_t dim, float*, float*, float*) noexcept;
};

template <KvRowCodec... Cs>
constexpr std::array<Entry, sizeof...(Cs)> entries_of(TypeList<Cs...>) {
  return {Entry{Cs::kSides, Cs::kIsRotated, Cs::kHasOffset, Cs::kHasZeroPoint, &Cs::can_store,
                &Cs::group_of, &Cs::is_signed, &Cs::variants, &Cs::centroids, &Cs::row_bytes,
                &Cs::signature_part, &Cs::encode, &Cs::decode, &Cs::unpack}...};
}

constexpr auto kEntries = entries_of(KvCodecs{});

static_assert(KvCodecs::index_of<KvExact>() == 0);

template <class C>
KvCodec make(int bits, int group, ScaleType scales) noexcept {
  return {static_cast<std::uint8_t>(KvCodecs::index_of<C>()), static_cast<std::uint8_t>(bits),
          static_cast<std::uint16_t>(group), scales};
}

const Entry& entry_of(const KvCodec& codec) noexcept { return kEntries[codec.kind]; }

}  // namespace

KvCodec affine_kv(int bits, int group, ScaleType scales) noexcept {
  return make<KvAffine>(bits, group, scales);
}
KvCodec turbo_keys_kv(int bits) noexcept {
  return make<KvTurboKeys>(bits, KvTurboKeys::kGroup, ScaleType::f16);
}
KvCodec turbo_values_kv(int bits) noexcept {
  return make<KvTurboValues>(bits, KvTurboValues::kGroup, ScaleType::f16);
}

std::vector<KvCodec> all_kv_codecs(KvSide side, ScaleType exact) {
  std::vector<KvCodec> out;
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    const KvSides other = side == KvSide::keys ? KvSides::values : KvSides::keys;
    if (kEntries[i].sides == other) continue;
    for (const KvVariant& variant : kEntries[i].variants())
      out.push_back({static_cast<std::uint8_t>(i), variant.bits, variant.group,
                     variant.scale_type.value_or(exact)});
  }
  return out;
}

std::optional<KvCodec> find_kv_codec(KvSide side, std::string_view text, ScaleType exact) {
  for (const KvCodec& codec : all_kv_codecs(side, exact))
    if (signature_part(codec) == text) return codec;
  return std::nullopt;
}

std::vector<KvCodecPair> paired_kv_codecs(ScaleType exact) {
  const std::vector<KvCodec> values = all_kv_codecs(KvSide::values, exact);
  const std::vector<KvCodec> keys = all_kv_codecs(KvSide::keys, exact);
  std::vector<KvCodecPair> out;
  for (const KvCodec& k : keys)
    out.push_back({k, find_kv_codec(KvSide::values, signature_part(k), exact).value_or(values[0])});
  for (const KvCodec& v : values)
    if (!find_kv_codec(KvSide::keys, signature_part(v), exact)) out.push_back({keys.back(), v});
  return out;
}

bool can_store(const KvCodec& codec, std::uint32_t dim) noexcept {
  return entry_of(codec).can_store(codec, dim);
}
std::uint32_t group_of(const KvCodec& codec) noexcept { return entry_of(codec).group_of(codec); }
bool has_offsets(const KvCodec& codec) noexcept { return entry_of(codec).has_offset; }
bool has_signed_codes(const KvCodec& codec) noexcept { return entry_of(codec).is_signed(codec); }
bool has_zero_points(const KvCodec& codec) noexcept { return entry_of(codec).has_zero_point; }
std::size_t row_bytes(const KvCodec& codec, KvRowPart part, std::uint32_t dim) noexcept {
  return entry_of(codec).row_bytes(codec, part, dim);
}
std::string signature_part(const KvCodec& codec) { return entry_of(codec).signature_part(codec); }

void encode_row(const KvCodec& codec, const float* x, std::uint32_t dim, const KvRow& to) noexcept {
  const FloatModeScope mode;
  entry_of(codec).encode(codec, x, dim, to);
}
void decode_row(const KvCodec& codec, const KvRow& from, std::uint32_t dim, float* out) noexcept {
  entry_of(codec).decode(codec, from, dim, out);
}
void unpack_row(const KvCodec& codec,
                const KvRow& from,
                std::uint32_t dim,
                float* codes,
                float* scales,
                float* offsets) noexcept {
  entry_of(codec).unpack(codec, from, dim, codes, scales, offsets);
}

std::span<const float> centroids(const KvCodec& codec) noexcept {
  return entry_of(codec).centroids(codec);
}
bool is_rotated(const KvCodec& codec) noexcept { return entry_of(codec).is_rotated; }

void unrotate(float* out, std::uint32_t dim) noexcept { unrotate_row(out, dim); }
void unrotate(double* out, std::uint32_t dim) noexcept { unrotate_row(out, dim); }

}  // namespace kvasir::codec
