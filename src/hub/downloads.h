// Downloads: fetches models one after another on its own thread, for a server (GET /downloads).
// Starting what is already waiting or running gives the same id. The destructor cancels and joins;
// what was fetched so far stays for the next time. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/get.h"
#include "hub/options.h"
#include "json/json.h"

namespace kvasir::hub {

enum class DownloadState : std::uint8_t { queued, running, done, failed, cancelled };
std::string_view name_of(DownloadState state) noexcept;

struct Download {
  std::uint64_t id = 0;  // from 1
  std::string repo;      // as asked for, "org/name[@revision]"
  DownloadState state = DownloadState::queued;
  std::uint64_t done_bytes = 0, total_bytes = 0;  // total 0: not known yet
  std::string path;                               // what to open, when done
  std::string error;                              // when failed
};

class Downloads {
 public:
  // finished: called on the worker thread after each, with no lock held; for a Library's refresh.
  explicit Downloads(HubOptions options, std::function<void(const Download&)> finished = {});
  ~Downloads();
  Downloads(const Downloads&) = delete;

  struct Wanted {
    std::string repo;
    std::vector<std::string> include, exclude;
  };
  // Errors: invalid_argument (no repository), capacity (too many waiting).
  Result<std::uint64_t> start(const Wanted& wanted);
  Status cancel(std::uint64_t id);     // not_found; no effect on what has ended
  std::vector<Download> list() const;  // oldest first; the last 100 that ended are kept

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

json::Value to_json(const Download& download);
json::Value to_json(const std::vector<Download>& downloads);  // {"downloads": […]}

}  // namespace kvasir::hub
