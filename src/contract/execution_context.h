// ExecutionContext: execution state that rows must share to run together, e.g. a set of mounted
// adapters (EXE-55). Equal keys mean equivalent state, by content; schedulers compare keys and
// never look inside. Engine thread only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

class ExecutionScope {  // entered until destroyed
 public:
  virtual ~ExecutionScope() = default;
};

class ExecutionContext {
 public:
  explicit ExecutionContext(std::string key) : key_(std::move(key)) {}
  virtual ~ExecutionContext() = default;
  std::string_view key() const noexcept { return key_; }
  virtual Result<std::unique_ptr<ExecutionScope>> enter() = 0;

 private:
  std::string key_;
};

}  // namespace kvasir
