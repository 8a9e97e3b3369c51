#include "codec/weight_type.h"

#include <array>

#include "codec/list.h"

namespace kvasir::codec {
namespace {

struct Entry {
  WeightTypeInfo info;
  void (*decode)(const RowPlanes&, std::size_t n, float* out) noexcept;
  void (*unpack)(const RowPlanes&, std::size_t n, std::int16_t*, float*, float*) noexcept;
};

template <DenseCodec C>
void decode_dense(const RowPlanes& row, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) C::decode(row.codes + i * C::kBlockBytes, out + i);
}

template <QuantizedCodec C>
void unpack_blocks(const RowPlanes& row,
                   std::size_t n,
                   std::int16_t* codes,
                   float* scales,
                   float* biases) noexcept {
  constexpr std::size_t kGroups = C::kBlock / C::kGroup;
  for (std::size_t b = 0; b < n / C::kBlock; ++b) {
    C::unpack(row, b, codes + b * C::kBlock, scales + b * kGroups, biases + b * kGroups);
    if constexpr (!C::kHasBias) {
      for (std::size_t g = 0; g < kGroups; ++g) biases[b * kGroups + g] = 0.0f;
    }
  }
}

template <QuantizedCodec C>
void decode_quantized(const RowPlanes& row, std::size_t n, float* out) noexcept {
  constexpr std::size_t kGroups = C::kBlock / C::kGroup;
  std::int16_t codes[C::kBlock];
  float scales[kGroups], biases[kGroups] = {};
  for (std::size_t b = 0; b < n / C::kBlock; ++b) {
    C::unpack(row, b, codes, scales, biases);
    for (std::size_t i = 0; i < C::kBlock; ++i) {
      out[b * C::kBlock + i] = dequantize(codes[i], scales[i / C::kGroup], biases[i / C::kGroup]);
    }
  }
}

template <class C>
constexpr Entry entry_of() {
  Entry e{{.name = C::kName, .block = C::kBlock, .block_bytes = C::kBlockBytes}, nullptr, nullptr};
  e.info.gguf_type = C::kGgufType;
  e.info.quantized = C::kQuantized;
  if constexpr (requires { C::kGroup; }) e.info.group = C::kGroup;
  if constexpr (requires { C::kScalePlane; }) e.info.scale_plane = C::kScalePlane;
  if constexpr (C::kQuantized) {
    e.info.bits = C::kBits;
    e.info.is_signed = C::kSigned;
    e.info.has_bias = C::kHasBias;
    e.decode = &decode_quantized<C>;
    e.unpack = &unpack_blocks<C>;
  } else if constexpr (RowCodec<C>) {
    e.decode = &C::decode_row;
  } else {
    e.decode = &decode_dense<C>;
  }
  return e;
}

template <class... Cs>
constexpr std::array<Entry, sizeof...(Cs)> entries_of(TypeList<Cs...>) {
  return {entry_of<Cs>()...};
}

constexpr auto kEntries = entries_of(WeightCodecs{});

}  // namespace

const WeightTypeInfo& info(WeightType type) noexcept { return kEntries[type.index].info; }

std::optional<WeightType> find_weight_type(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].info.name == name) return WeightType{static_cast<std::uint8_t>(i)};
  }
  return std::nullopt;
}

std::optional<WeightType> find_gguf_type(std::uint32_t ggml_type) noexcept {
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    const int type = kEntries[i].info.gguf_type;
    if (type >= 0 && static_cast<std::uint32_t>(type) == ggml_type)
      return WeightType{static_cast<std::uint8_t>(i)};
  }
  return std::nullopt;
}

void decode_row(WeightType type, const RowPlanes& row, std::size_t n, float* out) noexcept {
  kEntries[type.index].decode(row, n, out);
}

void unpack_row(WeightType type,
                const RowPlanes& row,
                std::size_t n,
                std::int16_t* codes,
                float* scales,
                float* biases) noexcept {
  kEntries[type.index].unpack(row, n, codes, scales, biases);
}

}  // namespace kvasir::codec
