#include "server/endpoints/response_store.h"

#include <iterator>
#include <utility>

namespace kvasir::server {

void ResponseStore::put(const std::string& id, StoredResponse response, Time now) {
  const std::size_t n_bytes =
      json::write(response.response).size() + json::write(response.messages).size() + id.size();
  if (n_bytes > kMaxBytes) return;
  const std::lock_guard lock(mutex_);
  if (const auto old = by_id_.find(id); old != by_id_.end()) drop(old->second);
  entries_.push_front({id, std::move(response), n_bytes, now + kLifetime});
  by_id_[id] = entries_.begin();
  n_bytes_ += n_bytes;
  while (n_bytes_ > kMaxBytes) drop(std::prev(entries_.end()));
}

std::optional<StoredResponse> ResponseStore::get(std::string_view id, Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end()) return std::nullopt;
  if (found->second->expires <= now) {
    drop(found->second);
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end()) return false;
  drop(found->second);
  return true;
}

ResponseStore::Stats ResponseStore::stats() const {
  const std::lock_guard lock(mutex_);
  return {entries_.size(), n_bytes_};
}

void ResponseStore::drop(Entries::iterator entry) {
  n_bytes_ -= entry->n_bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace kvasir::server
