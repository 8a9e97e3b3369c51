#include "kv/speculative_round.h"

#include <algorithm>
#include <utility>

#include "kv/kv_store.h"

namespace kvasir::kv {
namespace {

constexpr std::int64_t kMaxDrafts = 1 << 30;

Error discarded() { return invalid("speculative state is invalid and must be discarded"); }

Result<std::vector<std::uint32_t>> checked_drafts(std::span<const std::int64_t> drafts) {
  std::vector<std::uint32_t> out;
  for (const std::int64_t n : drafts) {
    if (n < 0 || n > kMaxDrafts) return invalid("invalid speculative draft count");
    out.push_back(static_cast<std::uint32_t>(n));
  }
  return out;
}

}  // namespace

SpeculativeRound::SpeculativeRound(std::vector<RoundLayout*> layouts)
    : layouts_(std::move(layouts)) {}

bool SpeculativeRound::every_layout_can(std::span<const std::uint32_t> drafts) const {
  return std::all_of(layouts_.begin(), layouts_.end(),
                     [&](const RoundLayout* layout) { return layout->can_begin(drafts); });
}

Result<bool> SpeculativeRound::can_begin(std::span<const std::int64_t> drafts) const {
  if (state_ == State::invalid) return discarded();
  KVASIR_TRY(const std::vector<std::uint32_t> counts, checked_drafts(drafts));
  return state_ == State::idle && every_layout_can(counts);
}

Status SpeculativeRound::begin(std::span<const std::int64_t> drafts) {
  if (state_ == State::invalid) return discarded();
  KVASIR_TRY(std::vector<std::uint32_t> counts, checked_drafts(drafts));
  if (state_ == State::active || !every_layout_can(counts))
    return invalid("speculative state cannot begin this round");
  state_ = State::active;
  drafts_ = std::move(counts);
  for (RoundLayout* layout : layouts_) {
    if (Status status = layout->begin(drafts_); !status) {
      state_ = State::invalid;
      return status;
    }
  }
  return {};
}

Status SpeculativeRound::resolve(std::span<const std::int64_t> accepted) {
  if (state_ == State::invalid) return discarded();
  const auto wrong = invalid("invalid speculative acceptance count");
  if (state_ != State::active || accepted.size() != drafts_.size()) return wrong;
  std::vector<std::uint32_t> keep;
  bool all = true;
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i] < 0 || accepted[i] > drafts_[i]) return wrong;
    keep.push_back(static_cast<std::uint32_t>(accepted[i]) + 1);
    all = all && accepted[i] == drafts_[i];
  }
  for (RoundLayout* layout : layouts_) {
    if (Status status = all ? layout->commit() : layout->rollback(keep); !status) {
      state_ = State::invalid;
      return status;
    }
  }
  state_ = State::idle;
  return {};
}

KvRound::KvRound(KvStore& store, std::vector<KvRowId> rows)
    : store_(store), rows_(std::move(rows)) {}

std::vector<RowSpan> KvRound::windows(std::span<const std::uint32_t> drafts) const {
  std::vector<RowSpan> out;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    out.push_back({.row = rows_[i], .n_tokens = drafts[i] + 1, .n_drafts = drafts[i]});
  return out;
}

bool KvRound::can_begin(std::span<const std::uint32_t> drafts) const {
  return !step_ && drafts.size() == rows_.size() && store_.can_reserve(windows(drafts));
}

Status KvRound::begin(std::span<const std::uint32_t> drafts) {
  if (step_ || drafts.size() != rows_.size()) return invalid("kv round: rows");
  KVASIR_TRY(KvStep step, store_.reserve(windows(drafts)));
  step_.emplace(std::move(step));
  return {};
}

Status KvRound::commit() {
  if (!step_) return invalid("kv round: not begun");
  std::move(*step_).commit();
  step_.reset();
  return {};
}

Status KvRound::rollback(std::span<const std::uint32_t> keep) {
  if (!step_ || keep.size() != rows_.size()) return invalid("kv round: not begun");
  std::move(*step_).commit(keep);
  step_.reset();
  return {};
}

}  // namespace kvasir::kv
