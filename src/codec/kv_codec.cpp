#include "codec/kv_codec.h"

#include <array>

#include "base/thread_pool.h"
#include "codec/kv/list.h"

namespace kvasir::codec {
namespace {

struct Entry {
  KvCodecKind kind;
  bool has_offset;
  bool has_zero_point;
  bool (*can_store)(const KvCodec&, std::uint32_t dim) noexcept;
  std::uint32_t (*group_of)(const KvCodec&) noexcept;
  bool (*is_signed)(const KvCodec&) noexcept;
  std::size_t (*row_bytes)(const KvCodec&, KvRowPart, std::uint32_t dim) noexcept;
  std::string (*signature_part)(const KvCodec&);
  void (*encode)(const KvCodec&, const float* x, std::uint32_t dim, const KvRow&) noexcept;
  void (*decode)(const KvCodec&, const KvRow&, std::uint32_t dim, float* out) noexcept;
  void (*unpack)(const KvCodec&, const KvRow&, std::uint32_t dim, float*, float*, float*) noexcept;
};

template <KvRowCodec... Cs>
constexpr std::array<Entry, sizeof...(Cs)> entries_of(TypeList<Cs...>) {
  return {Entry{Cs::kKind, Cs::kHasOffset, Cs::kHasZeroPoint, &Cs::can_store, &Cs::group_of,
                &Cs::is_signed, &Cs::row_bytes, &Cs::signature_part, &Cs::encode, &Cs::decode,
                &Cs::unpack}...};
}

constexpr auto kEntries = entries_of(KvCodecs{});

constexpr bool is_in_order_of_kinds() noexcept {
  for (std::size_t i = 0; i < kEntries.size(); ++i)
    if (static_cast<std::size_t>(kEntries[i].kind) != i) return false;
  return true;
}
static_assert(is_in_order_of_kinds());

const Entry& entry_of(const KvCodec& codec) noexcept {
  return kEntries[static_cast<std::size_t>(codec.kind)];
}

}  // namespace

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
  return is_rotated(codec) ? codebook_of(codec.bits).centroids : std::span<const float>{};
}

void unrotate(float* out, std::uint32_t dim) noexcept { unrotate_row(out, dim); }
void unrotate(double* out, std::uint32_t dim) noexcept { unrotate_row(out, dim); }

}  // namespace kvasir::codec
