#include "kvasir/kv/open_scheme.h"

#include <filesystem>
#include <mutex>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "fit/facts.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 4 << 20;

Result<std::optional<std::vector<kv::KvLayerBits>>> read_config(
    const std::filesystem::path& model) {
  std::optional<std::vector<kv::KvLayerBits>> out;
  const std::filesystem::path file = model / "kv_config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return out;
  KVASIR_TRY(const std::string text, read_file(file, kMaxConfigBytes));
  const auto value = json::parse(text);
  if (!value) return Error{value.error().code, "kv_config.json: " + value.error().what};
  KVASIR_TRY(out, kv::parse_kv_config(*value));
  return out;
}

void warn_of_exact_layers(const kv::KvScheme& scheme, const KvList& list) {
  static std::once_flag warned;
  const std::uint32_t n = kv::n_exact_windowed(scheme, list);
  if (n == 0) return;
  std::call_once(warned, [&] {
    log::warning("turbo KV applies to full attention; " + std::to_string(n) +
                 " windowed layers stay " + std::string(name_of(scheme.type)));
  });
}

}  // namespace

Result<kv::KvScheme> open_scheme(const OpenOptions& options, bool exact_f32, const KvList& list) {
  kv::KvSchemeRequest request{
      .quant = options.kv_quant, .start = options.kv_start, .group = options.kv_group};
  const bool is_f32 = exact_f32 || options.backend == Backend::ref;
  request.type = options.kv_type.value_or(is_f32 ? DType::f32 : DType::bf16);
  if (options.kv_quant == "config") {
    KVASIR_TRY(request.config, read_config(options.model));
  }
  KVASIR_TRY(kv::KvScheme scheme, kv::resolve_kv_scheme(request));
  scheme.first_span = options.kv_first_span;
  KVASIR_TRY_DO(kv::forms_of(scheme, list));
  warn_of_exact_layers(scheme, list);
  return scheme;
}

std::size_t budget_of_rows(const KvList& list,
                           const kv::KvScheme& scheme,
                           std::uint64_t n_rows,
                           std::uint64_t n_tokens) {
  // An encoded form takes at most as much as the exact one, and both are needed at once.
  const std::size_t n_forms = scheme.kind == kv::KvSchemeKind::exact ? 1 : 2;
  // A row's state, the next one, a copy's, and those that a prefix cache keeps of it.
  constexpr std::size_t kStatesOfARow = 8;
  std::size_t row_bytes = 0;
  const auto layers = fit::state_of(list, {.type = scheme.type});
  KVASIR_CHECK(layers.has_value()) << "every layer has an exact form";
  for (const fit::StateLayer& layer : *layers)
    row_bytes += n_forms * layer.exact_bytes * n_tokens + kStatesOfARow * layer.constant_bytes;
  return n_rows * row_bytes;
}

}  // namespace kvasir
