// Library: the models on this machine as a server shows them (GET /library, the rest of
// /v1/models). refresh() looks at the disk; models() gives the last picture at once. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/model_entry.h"
#include "hub/options.h"
#include "hub/registry.h"

namespace kvasir::hub {

class Library {
 public:
  using Models = std::shared_ptr<const std::vector<ModelEntry>>;  // shared with its readers

  // Without a registry file that can be written it works in memory.
  static Result<std::unique_ptr<Library>> open(HubOptions options);

  Result<ScanReport> refresh();
  Models models() const;
  Result<ModelEntry> find(std::string_view query) const;
  Status record_speed(const std::filesystem::path& path, double prefill, double decode);
  // As the registry's.
  Result<std::optional<MachineRates>> machine_rates(const std::string& name) const {
    return registry_.machine_rates(name);
  }
  Status record_machine_rates(const std::string& name, const MachineRates& rates) {
    return registry_.record_machine_rates(name, rates);
  }

 private:
  Library(HubOptions options, Registry registry);
  Status take_picture();

  const HubOptions options_;
  Registry registry_;
  mutable std::mutex mutex_;
  Models models_;
};

json::Value to_json(const std::vector<ModelEntry>& models);  // {"models": […]}

}  // namespace kvasir::hub
