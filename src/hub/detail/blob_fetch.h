// One blob of a repository: present, or fetched, resumed and verified under its lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/detail/http.h"
#include "hub/detail/listing.h"

namespace kvasir::hub {

struct BlobJob {
  const HubOptions& options;
  HttpClient& client;
  const std::atomic<bool>* cancel;  // may be null
  std::string repo, commit;
  RemoteFile file;                              // its blob is known
  std::function<void(std::uint64_t)> on_bytes;  // bytes of this file that are on disk
};

struct BlobResult {
  std::uint64_t fetched_bytes = 0;  // over the network
};

// Errors say the file. On cancellation and lost connections what was fetched stays for the next
// call; when the digest is wrong it is deleted.
Result<BlobResult> fetch_blob(const BlobJob& job);

// The blob is there, of the size it should have.
bool has_blob(const std::filesystem::path& repo_path, const RemoteFile& file);

}  // namespace kvasir::hub
