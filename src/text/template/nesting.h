// Bounds the machine's stack: one guard for each statement and expression being evaluated.
#pragma once

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

class NestingGuard {
 public:
  explicit NestingGuard(Interp& in) : in_(in) { ++in_.tree_depth_; }
  ~NestingGuard() { --in_.tree_depth_; }
  NestingGuard(const NestingGuard&) = delete;
  NestingGuard& operator=(const NestingGuard&) = delete;
  bool fits() const {
    if (in_.tree_depth_ > kMaxTreeDepth) in_.fail_limits();
    return !in_.failed();
  }

 private:
  Interp& in_;
};

}  // namespace kvasir::text::tmpl
