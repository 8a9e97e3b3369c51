#include "fit/facts.h"

#include "codec/kv_codec.h"

namespace kvasir::fit {
namespace {

StateLayer constant_layer(const RecurrentSpec& spec, std::uint64_t element_bytes) noexcept {
  const std::uint64_t tail = spec.conv_kernel > 0 ? spec.conv_kernel - 1 : 0;
  const std::uint64_t values = std::uint64_t{spec.n_value_heads} * spec.value_dim;
  return {.exact_bytes = 0,
          .encoded_bytes = 0,
          .window = 0,
          .constant_bytes = values * spec.key_dim * 4 + tail * spec.n_channels * element_bytes};
}

std::uint64_t row_bytes(const codec::KvCodec& codec, std::uint32_t dim) {
  std::uint64_t bytes = 0;
  for (const auto part :
       {codec::KvRowPart::codes, codec::KvRowPart::scales, codec::KvRowPart::offsets})
    bytes += codec::row_bytes(codec, part, dim);
  return bytes;
}

}  // namespace

Result<std::vector<StateLayer>> state_of(const KvList& list, const kv::KvScheme& scheme) {
  KVASIR_TRY(const std::vector<kv::KvLayerForm> forms, kv::forms_of(scheme, list));
  std::vector<StateLayer> out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_latent()) {
      const LatentSpec& latent = list[i].latent;
      out.push_back(latent_layer(latent.rank, latent.rope_dim, latent.index_dim,
                                 static_cast<std::uint32_t>(size_of(scheme.type))));
      continue;
    }
    if (list[i].is_recurrent()) {
      out.push_back(constant_layer(list[i].recurrent, size_of(scheme.type)));
      continue;
    }
    const std::uint64_t heads = list[i].n_kv_heads;
    const std::uint32_t dim = list[i].head_dim;
    StateLayer layer{.exact_bytes = 2 * heads * dim * size_of(scheme.type),
                     .encoded_bytes = 0,
                     .window = list[i].window,
                     .constant_bytes = 0};
    if (forms[i].has_encoded())
      layer.encoded_bytes = heads * (row_bytes(forms[i].k, dim) + row_bytes(forms[i].v, dim));
    out.push_back(layer);
  }
  return out;
}

StateLayer delta_layer(const DeltaShape& s, std::uint32_t element_bytes) noexcept {
  return constant_layer({.conv_kernel = s.conv_width,
                         .n_channels = 2 * s.k_heads * s.k_dim + s.v_heads * s.v_dim,
                         .n_value_heads = s.v_heads,
                         .value_dim = s.v_dim,
                         .key_dim = s.k_dim},
                        element_bytes);
}

StateLayer short_conv_layer(std::uint32_t conv_width,
                            std::uint32_t hidden,
                            std::uint32_t element_bytes) noexcept {
  return constant_layer({.conv_kernel = conv_width, .n_channels = hidden}, element_bytes);
}

StateLayer latent_layer(std::uint32_t kv_lora_rank,
                        std::uint32_t rope_dim,
                        std::uint32_t index_dim,
                        std::uint32_t element_bytes) noexcept {
  const std::uint64_t width = std::uint64_t{kv_lora_rank} + rope_dim + index_dim;
  return {
      .exact_bytes = width * element_bytes, .encoded_bytes = 0, .window = 0, .constant_bytes = 0};
}

}  // namespace kvasir::fit
