#include "hub/library.h"

#include "base/log.h"

namespace kvasir::hub {

Library::Library(HubOptions options, Registry registry)
    : options_(std::move(options)),
      registry_(std::move(registry)),
      models_(std::make_shared<const std::vector<ModelEntry>>()) {}

Result<std::unique_ptr<Library>> Library::open(HubOptions options) {
  auto registry = Registry::open(options.registry);
  if (!registry) {
    log::warning(registry.error().what + "; the registry is kept in memory");
    registry = Registry::open({});
  }
  if (!registry) return std::move(registry).error();
  std::unique_ptr<Library> out(new Library(std::move(options), *std::move(registry)));
  KVASIR_TRY_DO(out->take_picture());
  return out;
}

Status Library::take_picture() {
  KVASIR_TRY(std::vector<ModelEntry> models, registry_.models());
  auto picture = std::make_shared<const std::vector<ModelEntry>>(std::move(models));
  const std::lock_guard lock(mutex_);
  models_ = std::move(picture);
  return {};
}

Result<ScanReport> Library::refresh() {
  KVASIR_TRY(ScanReport report, registry_.scan(options_));
  KVASIR_TRY_DO(take_picture());
  return report;
}

Library::Models Library::models() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

Result<ModelEntry> Library::find(std::string_view query) const {
  return find_model(*models(), query);
}

Status Library::record_speed(const std::filesystem::path& path, double prefill, double decode) {
  KVASIR_TRY_DO(registry_.record_speed(path, prefill, decode));
  return take_picture();
}

json::Value to_json(const std::vector<ModelEntry>& models) {
  json::Array out;
  for (const ModelEntry& entry : models) out.push_back(to_json(entry));
  return json::Object{{"models", std::move(out)}};
}

}  // namespace kvasir::hub
