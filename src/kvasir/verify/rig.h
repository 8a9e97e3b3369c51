// Rig: one open model behind the engine, driven step by step by a check, and what each request
// gave. One thread.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "contract/generate_options.h"
#include "contract/outcome.h"
#include "engine/engine.h"
#include "kvasir/options.h"
#include "kvasir/verify/runs_behind.h"
#include "model/model.h"

namespace kvasir::verify {

struct RigOptions {
  OpenOptions open;
  int n_threads = 0;
  bool use_graphs = true;
  std::uint32_t block_tokens = 64;
  bool with_cache = false;
  bool plant_row_count_fault = false;
  bool runs_ahead = false;  // on every backend (EXE-10)
};

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  Outcome outcome;
  bool finished = false;
};

// Tokens and logprobs equal, bit for bit.
bool same_bits(const Answer& a, const Answer& b);

class Rig {
 public:
  static Result<std::unique_ptr<Rig>> open(const RigOptions& options);

  // The answer fills while the engine steps; it stays where it is.
  Result<std::shared_ptr<Answer>> submit(GenerateOptions options);
  Result<std::vector<std::shared_ptr<Answer>>> submit_choices(GenerateOptions options,
                                                              std::uint32_t n);
  Status step();  // the run's failure, if it failed
  Status run_until_idle();
  Result<Answer> run_alone(GenerateOptions options);

  std::uint32_t most_rows() const noexcept {
    return most_rows_;
  }  // of any step since reset_most_rows
  void reset_most_rows() noexcept { most_rows_ = 0; }
  int n_threads() const noexcept { return device_->n_threads(); }
  std::uint32_t vocab() const noexcept { return model_->vocab_size(); }
  std::uint32_t context() const noexcept { return model_->max_positions(); }
  std::uint64_t transition() const noexcept { return transition_; }  // T of KV-20
  std::uint64_t n_ahead() const noexcept { return behind_ ? behind_->n_ahead() : 0; }

 private:
  Rig() = default;
  std::unique_ptr<ops::Device> device_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<RunsBehind> behind_;
  SteadyClock clock_;
  std::unique_ptr<engine::Engine> engine_;
  std::uint32_t most_rows_ = 0;
  std::uint64_t transition_ = 0;
};

}  // namespace kvasir::verify
