// ResponseStore: answers of /v1/responses that later requests may refer to (SRV-42): an hour, at
// most 32 MiB, the least recently used go first. In memory, this process only. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "json/json.h"

namespace kvasir::server {

struct StoredResponse {
  json::Value response;  // as it was answered
  json::Array messages;  // the whole conversation, the answer included, as chat messages
};

class ResponseStore {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMaxBytes = 32 << 20;
  static constexpr std::chrono::hours kLifetime{1};

  void put(const std::string& id, StoredResponse response, Time now);
  std::optional<StoredResponse> get(std::string_view id, Time now);
  bool erase(std::string_view id);

  struct Stats {
    std::size_t entries = 0, bytes = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    std::size_t n_bytes = 0;
    Time expires{};
  };
  using Entries = std::list<Entry>;  // most recently used first
  void drop(Entries::iterator entry);

  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_id_;
  std::size_t n_bytes_ = 0;
};

}  // namespace kvasir::server
