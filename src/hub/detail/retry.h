// When a request is worth another try, and how long to wait; what its failure is called.
#pragma once

#include <atomic>

#include "hub/detail/http.h"

namespace kvasir::hub {

class Retry {
 public:
  Retry(const HubOptions& options, const std::atomic<bool>* cancel)
      : options_(options), cancel_(cancel) {}

  // Waits before the next round and says true; false when there shall be none.
  bool again(const HttpOutcome& outcome, bool made_progress);

 private:
  bool sleep(std::chrono::milliseconds time) const;  // false: cancelled

  const HubOptions& options_;
  const std::atomic<bool>* cancel_;
  int n_failures_ = 0;  // in a row, without progress
  int n_rounds_ = 0;
};

// `subject` is a repository, or a file of one.
Error http_error(const HttpOutcome& outcome,
                 const std::string& subject,
                 const std::string& repo,
                 const HubOptions& options);

}  // namespace kvasir::hub
