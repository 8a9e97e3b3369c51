// Registry: what is known of the models on this machine, kept in an SQLite file (SRV-81). Derived:
// everything but measured speeds comes from the models' own headers, and a damaged or older file is
// made anew. Several processes may use one file. Thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/model_entry.h"
#include "hub/options.h"

namespace kvasir::hub {

struct ScanReport {
  struct Skipped {
    std::filesystem::path path;
    std::string reason;
  };
  std::vector<Skipped> skipped;  // looks like a model and is none that can be read
  std::size_t n_models = 0;      // now known
  std::size_t n_read = 0;        // new or changed, so their headers were read
  std::size_t n_gone = 0;        // no longer on disk
};

// Measured once a machine (FIT-16).
struct MachineRates {
  double bytes_per_second = 0, flops_per_second = 0;
};

class Registry {
 public:
  // "" is a registry in memory. Makes the file and its folder.
  static Result<Registry> open(const std::filesystem::path& file);
  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;
  ~Registry();

  // Looks through the hub cache, the given folders and those given in earlier scans; forgets what
  // is gone. Reads headers of new and changed models only. A given folder that is not there is an
  // error.
  Result<ScanReport> scan(const HubOptions& options,
                          const std::vector<std::filesystem::path>& folders = {});
  Result<std::vector<ModelEntry>> models() const;         // by display name, main revisions first
  Result<ModelEntry> find(std::string_view query) const;  // find_model over models()
  // Tokens per second; kept until the model's files change.
  Status record_speed(const std::filesystem::path& path, double prefill, double decode);
  // name: of a machine and how it is used, as the caller spells it. None: not measured yet.
  Result<std::optional<MachineRates>> machine_rates(const std::string& name) const;
  Status record_machine_rates(const std::string& name, const MachineRates& rates);

 private:
  struct Impl;
  explicit Registry(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::hub
