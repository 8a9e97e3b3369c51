// Collecting what the hub cache no longer needs (SRV-82): revisions without a ref, blobs that no
// snapshot links to, downloads nobody continued. First a plan to show, then, when asked for, its
// deletion; a repository in use (UseMark) is left alone, and what came into use or got a ref since
// the plan is not deleted. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/options.h"
#include "json/json.h"

namespace kvasir::hub {

enum class GcKind : std::uint8_t { revision, blob, incomplete };
std::string_view name_of(GcKind kind) noexcept;

struct GcItem {
  GcKind kind = GcKind::blob;
  std::string repo;
  std::filesystem::path path;
  std::uint64_t size_bytes = 0;  // a revision: of the blobs that only unneeded revisions link to
  bool was_asked_for = false;    // a revision named by the user, whatever refs say
};

struct GcPlan {
  std::vector<GcItem> items;
  std::vector<std::string> in_use;  // repositories left alone
  std::uint64_t size_bytes = 0;     // of all items
};

struct GcRequest {
  std::chrono::seconds stale_after{3600};  // an .incomplete nobody wrote to for this long
  std::vector<std::string> remove;         // "org/name[@ref or commit]": also when refs exist
};

Result<GcPlan> plan_gc(const HubOptions& options, const GcRequest& request = {});

struct GcReport {
  std::size_t n_deleted = 0;  // files and links
  std::uint64_t freed_bytes = 0;
  std::vector<std::string> in_use;
};

Result<GcReport> collect(const HubOptions& options, const GcRequest& request, const GcPlan& plan);
json::Value to_json(const GcPlan& plan);

}  // namespace kvasir::hub
