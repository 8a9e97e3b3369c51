// ShadowDevice: runs every matrix product on two devices over the same input and counts the outputs
// whose bits differ. How "linear layers agree at tolerance 0" (DESIGN §5) is checked on whole
// models. Results are the first device's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/wrapped_device.h"

namespace kvasir::verify {

class ShadowDevice final : public ops::WrappedDevice {
 public:
  ShadowDevice(std::unique_ptr<ops::Device> device, std::unique_ptr<ops::Device> shadow);

  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override;

  std::uint64_t n_outputs() const noexcept { return n_outputs_; }
  std::uint64_t n_differ() const noexcept { return n_differ_; }

 private:
  static void embed(ops::Device& device, const ops::EmbedArgs& args) noexcept;
  static void linear(ops::Device& device, const ops::LinearArgs& args) noexcept;

  std::unique_ptr<ops::Device> shadow_;
  std::vector<float> expected_;
  std::uint64_t n_outputs_ = 0;
  std::uint64_t n_differ_ = 0;
};

}  // namespace kvasir::verify
