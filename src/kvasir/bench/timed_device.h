// TimedDevice: what each operation of the steps takes, and what it must read and compute where its
// arguments say so: a roofline by operation. Each op is waited for, so a GPU's steps are slower
// than without. Same thread rule as Device.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "ops/wrapped_device.h"

namespace kvasir::bench {

struct OpTime {
  std::string_view name;  // of the OpTable's entry
  std::uint64_t n_calls = 0;
  double seconds = 0;
  double bytes = 0;  // weights, or keys and values; 0: not counted
  double flops = 0;
};

class TimedDevice final : public ops::WrappedDevice {
 public:
  // Steps of more tokens than n_rows are prefill.
  TimedDevice(std::unique_ptr<ops::Device> inner, std::uint32_t n_rows);

  // Ops run one by one, outside of steps, where a device would run ahead of its host.
  void begin_step(std::size_t n_tokens) noexcept override;
  Status end_step() noexcept override { return inner().synchronize(); }

  enum Phase : std::size_t { kPrefill, kDecode };
  // By time, those that ran; starts anew.
  std::vector<OpTime> take(Phase phase);

  void add(std::size_t op, double seconds, double bytes, double flops) noexcept;

 private:
  static constexpr std::size_t kOps = 32;
  std::uint32_t n_rows_;
  Phase phase_ = kPrefill;
  std::array<std::array<OpTime, kOps>, 2> times_{};
};

}  // namespace kvasir::bench
