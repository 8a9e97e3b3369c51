// Fetching a model from the hub into the cache (SRV-80). A file appears in a snapshot only when
// every byte of it is there and its digest is right; an interrupted call is continued by the next.
// Any number of threads and processes may fetch the same repository: each blob is written by one.
// Blocks; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "hub/options.h"

namespace kvasir::hub {

struct GetRequest {
  std::string repo;  // "org/name[@revision]"
  // Shell patterns over file names; '*' also matches '/'. Without `include`: what this engine can
  // load, and no second copy of it.
  std::vector<std::string> include, exclude;
  bool is_dry_run = false;  // says what would be fetched
  ProgressSink progress;    // bytes of all files; called on this thread
  const std::atomic<bool>* cancel = nullptr;
};

struct GetFile {
  std::string name;
  std::uint64_t size_bytes = 0;
  bool was_present = false;
};

struct GetReport {
  std::string repo, revision, commit;
  std::filesystem::path snapshot;  // its folder
  std::filesystem::path model;     // what to open: the folder, or its one GGUF model
  std::vector<GetFile> files;
  std::uint64_t total_bytes = 0, fetched_bytes = 0;  // over the network in this call
};

// Errors: invalid_argument (repository, patterns, a hostile listing), not_found, unsupported (only
// weights we cannot load), capacity (disk space), cancelled, io (network, access, digest). id is
// "gated_repository" for 401 and 403, "digest_mismatch" when bytes were not what they should be.
Result<GetReport> get(const HubOptions& options, const GetRequest& request);

}  // namespace kvasir::hub
