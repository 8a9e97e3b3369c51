// Owners that may fail to close, and changes of state that are prepared whole before they are
// published (EXE-50…52). Owners are move-only values with `Status close()`. Functions only; the
// caller's thread.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kvasir {

// A failure and the errors of the cleanup after it; the first error stays primary (EXE-22).
struct CleanupReport {
  Error primary;
  std::vector<Error> also;
};

template <class Owner>
concept Closable = requires(Owner owner) {
  { owner.close() } -> std::same_as<Status>;
}
&&!std::is_copy_constructible_v<Owner>;

// Runs cleanup whatever happened before; its error goes to `also`.
template <class Cleanup>
CleanupReport cleanup_failure(Error primary, Cleanup&& cleanup) {
  CleanupReport report{std::move(primary), {}};
  if (Status closed = std::forward<Cleanup>(cleanup)(); !closed)
    report.also.push_back(std::move(closed).error());
  return report;
}

// use(owner) → Result<T>. Failure closes the owner, whose own error goes to `also`; success leaves
// it to use, which usually moved it into the result.
template <Closable Owner, class Use>
auto with_resource(Owner owner, Use&& use, std::vector<Error>& also) -> decltype(use(owner)) {
  auto result = std::forward<Use>(use)(owner);
  if (!result) {
    if (Status closed = owner.close(); !closed) also.push_back(std::move(closed).error());
  }
  return result;
}

// Closes every owner, in order, past failures.
template <Closable Owner>
std::vector<Error> close_all(std::span<Owner> owners) {
  std::vector<Error> errors;
  for (Owner& owner : owners) {
    if (Status closed = owner.close(); !closed) errors.push_back(std::move(closed).error());
  }
  return errors;
}

// A replacement that is built and not yet published. Destroying it releases the replacement, or
// after commit the state it superseded.
class PreparedChange {
 public:
  virtual ~PreparedChange() = default;
  virtual void commit() noexcept = 0;  // between method rounds: no device work, no validation
};

// Builds all, commits all, destroys all. A build that fails destroys those built before it; nothing
// was published. Builders: callables → Result<std::unique_ptr<PreparedChange>>.
template <class Builder>
Status apply_state_changes(std::span<Builder> builders) {
  std::vector<std::unique_ptr<PreparedChange>> changes;
  changes.reserve(builders.size());
  for (Builder& build : builders) {
    KVASIR_TRY(std::unique_ptr<PreparedChange> change, build());
    changes.push_back(std::move(change));
  }
  for (const auto& change : changes) change->commit();
  return {};
}

}  // namespace kvasir
