// KvStep: the KV transaction of one step (KV-50…56). KvStore::reserve does all that can fail;
// commit publishes and cannot fail; the destructor rolls back. Invariant: until commit no committed
// slot is overwritten and no block is released, so a rollback leaves the store as it was (evicted
// cache entries excepted). Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "tensor/kv_views.h"

namespace kvasir::kv {

class KvStore;
struct StepBody;  // private: what is staged

struct RowSpan {
  KvRowId row;
  std::uint32_t n_tokens = 0;  // tokens the row feeds, ≥ 1
  std::uint32_t n_drafts = 0;  // how many of the last ones may be rejected; < n_tokens
};

class KvStep {
 public:
  KvStep(KvStep&& other) noexcept;
  KvStep& operator=(KvStep&& other) noexcept;  // rolls back what it held
  ~KvStep();                                   // rollback of whatever is not committed or discarded

  // Rows in span order, first_token counting through the spans. Valid until this step ends.
  KvViews views() const noexcept;
  std::size_t n_rows() const noexcept;

  // Takes a row (index into the spans) out of the step: nothing it fed is kept (KV-52, KV-55). Its
  // state is as before the step; a cancelled or failed row is then freed by its owner. Discarding
  // twice does nothing.
  void discard(std::size_t index) noexcept;

  // keep[i]: how many of span i's tokens stay: 0 (the state from before the window, KV-53) or at
  // least n_tokens − n_drafts. Entries of discarded rows are ignored. Then releases blocks wholly
  // behind a window (KV-38).
  void commit(std::span<const std::uint32_t> keep) && noexcept;
  void commit() && noexcept;  // keeps every token

 private:
  friend class KvStore;
  explicit KvStep(std::unique_ptr<StepBody> body) noexcept;
  std::unique_ptr<StepBody> body_;
};

}  // namespace kvasir::kv
