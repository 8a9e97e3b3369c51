// What the server counts, and /metrics (SRV-60; Prometheus text format 0.0.4). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/histogram.h"
#include "contract/outcome.h"
#include "engine/engine.h"
#include "kvasir/kvasir.h"

namespace kvasir::server {

class Metrics {
 public:
  void count_request(std::string_view endpoint, int status);
  void add_outcome(const Outcome& outcome);
  // engine: null before it is loaded.
  std::string text(const Engine* engine) const;

  struct Totals {
    std::uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    std::uint64_t draft_tokens = 0, accepted_tokens = 0, requests = 0;
    std::uint64_t decode_tokens = 0;  // behind each request's first
    double prefill_s = 0, decode_s = 0;
  };
  Totals totals() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t, std::less<>> requests_;
  Totals totals_;
  Histogram queue_wait_, first_token_, token_;
};

}  // namespace kvasir::server
