// ShadowDevice: runs every matrix product on two devices over the same input and counts the outputs
// that differ: whose bits differ, or, given a bound, that are further apart than it. How linear
// layers are checked on whole models (DESIGN §5). Results are the first device's; the second one is
// of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/wrapped_device.h"

namespace kvasir::verify {

class ShadowDevice final : public ops::WrappedDevice {
 public:
  // units: outputs may be so many f32 roundings (2⁻²⁴) of ‖x‖·‖w‖ apart for each element of K,
  // which bounds those of Σ |x·w| (Cauchy-Schwarz); 0: not one bit.
  ShadowDevice(std::unique_ptr<ops::Device> device,
               std::unique_ptr<ops::Device> shadow,
               double units = 0);

  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override;

  std::uint64_t n_outputs() const noexcept { return n_outputs_; }
  std::uint64_t n_differ() const noexcept { return n_differ_; }

 private:
  static void embed(ops::Device& device, const ops::EmbedArgs& args) noexcept;
  static void linear(ops::Device& device, const ops::LinearArgs& args) noexcept;

  static void moe_experts(ops::Device& device, const ops::MoeExpertsArgs& args) noexcept;
  void compare(const std::vector<float>& x,
               const std::vector<float>& got,
               const std::vector<double>& norms);

  std::unique_ptr<ops::Device> shadow_;
  double units_;
  std::vector<float> expected_;
  std::uint64_t n_outputs_ = 0;
  std::uint64_t n_differ_ = 0;
};

}  // namespace kvasir::verify
