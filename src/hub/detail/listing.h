// The files of one revision of a repository, as the hub's API lists them. Everything in the answer
// is untrusted: names are checked before they become paths, digests before they become file names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/detail/http.h"
#include "hub/repo.h"
#include "json/json.h"

namespace kvasir::hub {

struct RemoteFile {
  std::string name;  // relative, '/' between folders; safe (is_safe_name)
  std::string blob;  // SHA-256 of an LFS file, else git's SHA-1; "" when the listing lacks it
  std::uint64_t size_bytes = 0;
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;
};

// May be joined to a snapshot's path: relative, no empty, "." or ".." part, no backslash, NUL or
// other control character.
bool is_safe_name(std::string_view name) noexcept;

Result<Listing> parse_listing(const json::Value& answer);

// GET {endpoint}/api/models/{repo}/revision/{revision}?blobs=true
Result<Listing> fetch_listing(HttpClient& client,
                              const HubOptions& options,
                              const RepoRef& ref,
                              const std::atomic<bool>* cancel);

std::string file_url(const HubOptions& options,
                     const std::string& repo,
                     const std::string& commit,
                     const std::string& name);

// Fills blob and size from the headers of a HEAD request, for servers whose listing lacks them.
Status fetch_facts(HttpClient& client,
                   const HubOptions& options,
                   const std::string& repo,
                   const std::string& commit,
                   RemoteFile& file,
                   const std::atomic<bool>* cancel);

}  // namespace kvasir::hub
