#include "kv/kv_scheme.h"

#include <algorithm>
#include <charconv>

namespace kvasir::kv {
namespace {

constexpr std::uint64_t kUniformStart = 5000;                      // KV-5
constexpr std::uint64_t kMaxStart = (std::uint64_t{1} << 53) - 1;  // KV-3

codec::ScaleType scale_type_of(DType type) noexcept {
  if (type == DType::f32) return codec::ScaleType::f32;
  return type == DType::f16 ? codec::ScaleType::f16 : codec::ScaleType::bf16;
}

std::uint64_t start_of(const KvScheme& scheme) noexcept {
  return scheme.start.value_or(scheme.kind == KvSchemeKind::affine_uniform ? kUniformStart : 0);
}

KvLayerForm affine_form(const KvScheme& scheme, std::uint8_t bits, std::uint16_t group) {
  const codec::KvCodec codec = codec::affine_kv(bits, group, scale_type_of(scheme.type));
  return {codec, codec};
}

KvLayerForm turbo_form(const KvScheme& scheme) {
  return {codec::turbo_keys_kv(scheme.k_bits), codec::turbo_values_kv(scheme.v_bits)};
}

Error cannot_store(std::size_t layer, const KvLayerSpec& spec, const KvLayerForm& form) {
  return invalid("kv-quant: layer " + std::to_string(layer) + " has head_dim " +
                 std::to_string(spec.head_dim) + ", which " + codec::signature_part(form.k) +
                 " cannot store");
}

// The form that the scheme gives a layer, before it is checked.
KvLayerForm wanted_form(const KvScheme& scheme, const KvLayerSpec& spec, std::uint32_t layer) {
  if (!spec.is_attention()) return {};  // KV-7
  switch (scheme.kind) {
    case KvSchemeKind::exact:
      break;
    case KvSchemeKind::affine_uniform:
      return affine_form(scheme, scheme.bits, scheme.group);
    case KvSchemeKind::turbo:
      if (spec.window == 0) return turbo_form(scheme);
      break;
    case KvSchemeKind::affine_config:
      for (const KvLayerBits& entry : scheme.layers)
        if (entry.layer == layer) return affine_form(scheme, entry.bits, entry.group);
      break;
    case KvSchemeKind::named:
      return {scheme.k_codec, scheme.v_codec};
  }
  return {};
}

std::optional<std::uint8_t> bits_after(std::string_view& text, char side) {
  if (text.size() < 2 || text[0] != side) return std::nullopt;
  const char digit = text[1];
  text.remove_prefix(2);
  return static_cast<std::uint8_t>(digit - '0');
}

bool is_one_of(std::uint32_t value, std::initializer_list<std::uint32_t> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

Error bad_quant() { return invalid("kv-quant must be off, config, 4, 8 or turbo[:kKvV]"); }

// "turbo" or "turbo:k4v2".
Status read_turbo(std::string_view text, KvScheme& out) {
  text.remove_prefix(std::string_view("turbo").size());
  if (text.empty()) return {};
  if (text[0] != ':') return bad_quant();
  text.remove_prefix(1);
  const auto k = bits_after(text, 'k');
  const auto v = bits_after(text, 'v');
  if (!k || !v || !text.empty() || !is_one_of(*k, {2, 4, 5, 8}) || !is_one_of(*v, {2, 3, 4, 5, 8}))
    return invalid("kv-quant turbo:kKvV takes K of 2, 4, 5 or 8 and V of 2, 3, 4, 5 or 8");
  out.k_bits = *k;
  out.v_bits = *v;
  return {};
}

// A codec by the name it has in signatures, for keys and values alike or "K,V".
Result<KvScheme> read_named(std::string_view text, KvScheme out) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const std::string_view k = text.substr(0, comma);
  const std::string_view v = comma < text.size() ? text.substr(comma + 1) : k;
  const auto k_codec = codec::find_kv_codec(codec::KvSide::keys, k, scale_type_of(out.type));
  const auto v_codec = codec::find_kv_codec(codec::KvSide::values, v, scale_type_of(out.type));
  if (!k_codec || !v_codec) return bad_quant();
  out.kind = KvSchemeKind::named;
  out.k_codec = *k_codec;
  out.v_codec = *v_codec;
  out.start = out.start.value_or(0);
  return out;
}

std::string name_in_key(const codec::KvCodec& codec) {
  std::string name = codec::signature_part(codec);
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

Status read_start(std::string_view text, KvScheme& out) {
  if (text.empty()) return {};
  if (text == "eager") {
    out.is_eager = true;
    return {};
  }
  std::uint64_t start = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), start);
  if (error != std::errc{} || end != text.data() + text.size() || start > kMaxStart)
    return invalid("quantizedKvStart must be a nonnegative integer");
  out.start = start;
  return {};
}

Result<KvLayerBits> read_entry(const json::Value& entry, std::size_t index) {
  const std::string where = "kv_config.json: entry " + std::to_string(index) + ": ";
  const std::int64_t layer = entry.int_or("layer_idx", -1), bits = entry.int_or("bits", 0),
                     group = entry.int_or("group_size", 0);
  if (layer < 0 || layer > std::numeric_limits<std::uint32_t>::max())
    return invalid(where + "layer_idx must be a layer's index");
  if (bits != 4 && bits != 8) return invalid(where + "bits must be 4 or 8");
  if (group != 32 && group != 64 && group != 128)
    return invalid(where + "group_size must be 32, 64 or 128");
  return KvLayerBits{static_cast<std::uint32_t>(layer), static_cast<std::uint8_t>(bits),
                     static_cast<std::uint16_t>(group)};
}

}  // namespace

std::uint64_t KvScheme::transition() const noexcept {
  if (kind == KvSchemeKind::exact) return kNeverEncoded;
  return is_eager ? 0 : std::max<std::uint64_t>(start_of(*this), first_span);
}

std::string KvScheme::cache_key() const {
  const std::string exact(name_of(type));
  if (kind == KvSchemeKind::exact) return exact;
  std::string key = "config";
  if (kind == KvSchemeKind::affine_uniform) {
    key = "kv" + std::to_string(bits);
    if (group != 64) key += "-g" + std::to_string(group);
  } else if (kind == KvSchemeKind::turbo) {
    key = "turbo-k" + std::to_string(k_bits) + "v" + std::to_string(v_bits);
  } else if (kind == KvSchemeKind::named) {
    key = "k-" + name_in_key(k_codec) + "-v-" + name_in_key(v_codec);
  }
  if (const std::uint64_t from = start_of(*this); from > 0) key += "-start" + std::to_string(from);
  if (is_eager) key += "-eager";
  if (first_span != kFirstSpan) key += "-span" + std::to_string(first_span);
  if (type != DType::bf16) key += "-" + exact;
  return key;
}

Result<std::vector<KvLayerForm>> forms_of(const KvScheme& scheme, const KvList& list) {
  std::vector<KvLayerForm> forms;
  for (const KvLayerBits& entry : scheme.layers) {
    if (scheme.kind != KvSchemeKind::affine_config) break;  // ignored (KV-4)
    if (entry.layer >= list.size())
      return invalid("kv_config.json: layer_idx " + std::to_string(entry.layer) +
                     " is beyond the model's " + std::to_string(list.size()) + " KV layers");
    if (!list[entry.layer].is_attention())
      return invalid("kv_config.json: layer_idx " + std::to_string(entry.layer) + " is a " +
                     (list[entry.layer].is_latent() ? "latent" : "recurrent") +
                     " layer, which stays exact");
  }
  bool has_effect = scheme.kind == KvSchemeKind::exact;
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    const KvLayerForm form = wanted_form(scheme, list[i], i);
    if (form.has_encoded() &&
        !(codec::can_store(form.k, list[i].head_dim) && codec::can_store(form.v, list[i].head_dim)))
      return cannot_store(i, list[i], form);
    has_effect |= form.has_encoded();
    forms.push_back(form);
  }
  if (!has_effect) return invalid("kv-quant has no effect on this model");
  return forms;
}

std::uint32_t n_exact_windowed(const KvScheme& scheme, const KvList& list) noexcept {
  if (scheme.kind != KvSchemeKind::turbo) return 0;
  return static_cast<std::uint32_t>(std::count_if(
      list.begin(), list.end(), [](const KvLayerSpec& layer) { return layer.window > 0; }));
}

Result<KvScheme> resolve_kv_scheme(const KvSchemeRequest& request) {
  KvScheme out;
  out.type = request.type;
  out.group = request.group;
  KVASIR_TRY_DO(read_start(request.start, out));
  if (request.quant == "turbo" || request.quant.starts_with("turbo:k")) {
    out.kind = KvSchemeKind::turbo;
    KVASIR_TRY_DO(read_turbo(request.quant, out));
    out.start = out.start.value_or(0);
    return out;
  }
  if (request.quant == "off" || request.quant.empty()) return KvScheme{.type = request.type};
  if (request.quant == "config") {
    if (!request.config || request.config->empty()) {
      if (request.requires_config)
        return invalid("model has no kv_config.json (--kv-quant config)");
      return KvScheme{.type = request.type};
    }
    out.kind = KvSchemeKind::affine_config;
    out.layers = *request.config;
    return out;
  }
  if (request.quant != "4" && request.quant != "8") return read_named(request.quant, out);
  if (!is_one_of(request.group, {32, 64, 128}))
    return invalid("kv-group-size must be 32, 64 or 128");
  out.kind = KvSchemeKind::affine_uniform;
  out.bits = request.quant == "4" ? 4 : 8;
  out.start = out.start.value_or(0);
  return out;
}

Result<std::vector<KvLayerBits>> parse_kv_config(const json::Value& file) {
  const json::Array* entries = file.as_array();
  if (!entries) return invalid("kv_config.json must be an array of {layer_idx, bits, group_size}");
  std::vector<KvLayerBits> out;
  for (std::size_t i = 0; i < entries->size(); ++i) {
    KVASIR_TRY(const KvLayerBits entry, read_entry((*entries)[i], i));
    const auto same = [&](const KvLayerBits& other) { return other.layer == entry.layer; };
    if (std::any_of(out.begin(), out.end(), same))
      return invalid("kv_config.json: entry " + std::to_string(i) + ": layer_idx " +
                     std::to_string(entry.layer) + " was named before");
    out.push_back(entry);
  }
  std::sort(out.begin(), out.end(),
            [](const KvLayerBits& a, const KvLayerBits& b) { return a.layer < b.layer; });
  return out;
}

Result<DType> parse_kv_type(std::string_view text) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    if (text == name_of(type)) return type;
  return invalid("kv dtype must be bf16, f16 or f32");
}

Status check_block_tokens(std::uint64_t block_tokens) {
  const bool power_of_two = (block_tokens & (block_tokens - 1)) == 0;
  if (block_tokens < 8 || block_tokens > 512 || !power_of_two)
    return invalid("kv block size must be a power of two from 8 to 512");
  return {};
}

}  // namespace kvasir::kv
