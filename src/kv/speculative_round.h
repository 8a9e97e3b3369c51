// SpeculativeRound: the call rules of a method round over every layout of its rows (KV-50…52): idle
// → active(drafts) → idle, any → invalid. KvRound is the store as such a layout. Used by
// speculative decoding; plain steps use KvStep. Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/kv_step.h"

namespace kvasir::kv {

class KvStore;

// What a round asks of a layout. Windows are 1 + drafts[row] tokens (the pending one first).
class RoundLayout {
 public:
  virtual ~RoundLayout() = default;
  virtual bool can_begin(std::span<const std::uint32_t> drafts) const = 0;
  virtual Status begin(std::span<const std::uint32_t> drafts) = 0;
  virtual Status commit() = 0;                                       // everything fed stays
  virtual Status rollback(std::span<const std::uint32_t> keep) = 0;  // keep[row] tokens stay
};

class SpeculativeRound {
 public:
  // Layouts are borrowed and must outlive the round.
  explicit SpeculativeRound(std::vector<RoundLayout*> layouts);

  // Counts are signed because they come from outside: a negative one is an error, not a bug. Errors
  // are KV-50's texts.
  Result<bool> can_begin(std::span<const std::int64_t> drafts) const;
  Status begin(std::span<const std::int64_t> drafts);
  Status resolve(std::span<const std::int64_t> accepted);

  bool active() const noexcept { return state_ == State::active; }
  bool valid() const noexcept { return state_ != State::invalid; }

 private:
  enum class State : std::uint8_t { idle, active, invalid };
  bool every_layout_can(std::span<const std::uint32_t> drafts) const;
  std::vector<RoundLayout*> layouts_;
  std::vector<std::uint32_t> drafts_;
  State state_ = State::idle;
};

// The rows' KV blocks as a layout: begin reserves, commit and rollback end the step.
class KvRound final : public RoundLayout {
 public:
  KvRound(KvStore& store, std::vector<KvRowId> rows);
  bool can_begin(std::span<const std::uint32_t> drafts) const override;
  Status begin(std::span<const std::uint32_t> drafts) override;
  Status commit() override;
  Status rollback(std::span<const std::uint32_t> keep) override;

  KvViews views() const noexcept { return step_->views(); }            // while active
  void discard(std::size_t index) noexcept { step_->discard(index); }  // while active (KV-52)

 private:
  std::vector<RowSpan> windows(std::span<const std::uint32_t> drafts) const;
  KvStore& store_;
  std::vector<KvRowId> rows_;
  std::optional<KvStep> step_;
};

}  // namespace kvasir::kv
