#include "cache/retention.h"

#include <algorithm>
#include <string>

namespace kvasir::cache {
namespace {

// CACHE-21.
class Lru final : public RetentionPolicy {
 public:
  void accessed(RetentionEntry&) noexcept override {}
  std::size_t victim(std::span<const RetentionEntry* const> entries) const noexcept override {
    std::size_t best = 0;
    for (std::size_t i = 1; i < entries.size(); ++i)
      if (entries[i]->last_used <= entries[best]->last_used) best = i;
    return best;
  }
  void evicted(const RetentionEntry&) noexcept override {}
};

// GreedyDual by prefill saved a byte (CACHE-22): what is not used again is overtaken by the age of
// what was evicted.
class CostSize final : public RetentionPolicy {
 public:
  void accessed(RetentionEntry& entry) noexcept override {
    const double worth = static_cast<double>(entry.cost) * static_cast<double>(entry.uses);
    entry.priority = age_ + worth / static_cast<double>(std::max<std::size_t>(1, entry.bytes));
  }
  std::size_t victim(std::span<const RetentionEntry* const> entries) const noexcept override {
    std::size_t best = 0;
    for (std::size_t i = 1; i < entries.size(); ++i) {
      const RetentionEntry &a = *entries[i], &b = *entries[best];
      if (a.priority < b.priority || (a.priority == b.priority && a.last_used < b.last_used))
        best = i;
    }
    return best;
  }
  void evicted(const RetentionEntry& entry) noexcept override {
    age_ = std::max(age_, entry.priority);
  }

 private:
  double age_ = 0;
};

}  // namespace

Result<std::unique_ptr<RetentionPolicy>> make_retention_policy(std::string_view name) {
  if (name == "lru") return std::unique_ptr<RetentionPolicy>(std::make_unique<Lru>());
  if (name == "cost-size") return std::unique_ptr<RetentionPolicy>(std::make_unique<CostSize>());
  return invalid("cache policy must be lru or cost-size");
}

}  // namespace kvasir::cache
