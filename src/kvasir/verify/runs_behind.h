// RunsBehind: an executor that says its work goes on after launch(), so that the engine runs ahead
// of it (EXE-10) on backends where there is nothing to gain by that. For checks.
#pragma once

#include "contract/executor.h"

namespace kvasir::verify {

class RunsBehind final : public Executor {
 public:
  explicit RunsBehind(Executor& inner) : inner_(inner) {}  // which outlives it
  const KvList& kv_list() const noexcept override { return inner_.kv_list(); }
  std::uint32_t vocab_size() const noexcept override { return inner_.vocab_size(); }
  std::uint32_t max_positions() const noexcept override { return inner_.max_positions(); }
  std::uint32_t max_step_tokens() const noexcept override { return inner_.max_step_tokens(); }
  OutputKind output() const noexcept override { return inner_.output(); }
  std::uint32_t output_width() const noexcept override { return inner_.output_width(); }
  bool takes_whole_rows() const noexcept override { return inner_.takes_whole_rows(); }
  Status launch(const StepBatch& batch) override {
    n_ahead_ += n_launched_;
    KVASIR_TRY_DO(inner_.launch(batch));
    ++n_launched_;
    return {};
  }
  Result<StepOutput> collect() override {
    --n_launched_;
    return inner_.collect();
  }
  bool runs_behind() const noexcept override { return true; }
  bool picks_tokens() const noexcept override { return inner_.picks_tokens(); }
  void replay(const StepBatch& batch, std::span<const std::uint32_t> keep) noexcept override {
    inner_.replay(batch, keep);
  }
  std::uint32_t max_tentative_tokens() const noexcept override {
    return inner_.max_tentative_tokens();
  }
  std::uint32_t max_wanted() const noexcept override { return inner_.max_wanted(); }

  // Steps launched before the one before them was collected.
  std::uint64_t n_ahead() const noexcept { return n_ahead_; }

 private:
  Executor& inner_;
  std::uint64_t n_launched_ = 0, n_ahead_ = 0;
};

}  // namespace kvasir::verify
