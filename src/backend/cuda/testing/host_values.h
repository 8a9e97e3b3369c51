// A CUDA device for tests whose matrices and planes are vectors (pinned_heap.cpp): an op has run
// when its call returns.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "backend/cuda/testing/device_memory.h"
#include "backend/ref/ref_device.h"
#include "ops/testing.h"
#include "ops/wrapped_device.h"

namespace kvasir::backend::cuda::testing {

// How each op runs: as it comes, or as a step of its own on the list that graphs are made of.
enum class Mode : std::uint8_t { eager, recorded };

class HostValues final : public ops::WrappedDevice {
 public:
  HostValues(ops::Device& inner, Mode mode) : WrappedDevice(inner), mode_(mode) {
    take<&ops::OpTable::rms_norm, ops::RmsNormArgs>();
    take<&ops::OpTable::layer_norm, ops::LayerNormArgs>();
    take<&ops::OpTable::l2_norm, ops::L2NormArgs>();
    take<&ops::OpTable::rope, ops::RopeArgs>();
    take<&ops::OpTable::kv_append, ops::KvAppendArgs>();
    take<&ops::OpTable::kv_convert, ops::KvConvertArgs>();
    take<&ops::OpTable::attention, ops::AttentionArgs>();
    take<&ops::OpTable::act_mul, ops::ActMulArgs>();
    take<&ops::OpTable::gate_rows, ops::GateRowsArgs>();
    take<&ops::OpTable::add_scaled, ops::AddScaledArgs>();
    take<&ops::OpTable::scale, ops::ScaleArgs>();
    take<&ops::OpTable::gather_rows, ops::GatherRowsArgs>();
    take<&ops::OpTable::causal_conv, ops::CausalConvArgs>();
    take<&ops::OpTable::delta_gates, ops::DeltaGatesArgs>();
    take<&ops::OpTable::gated_delta, ops::GatedDeltaArgs>();
    take<&ops::OpTable::latent_append, ops::LatentAppendArgs>();
    take<&ops::OpTable::latent_attention, ops::LatentAttentionArgs>();
    take<&ops::OpTable::index_select, ops::IndexSelectArgs>();
    take<&ops::OpTable::moe_route, ops::MoeRouteArgs>();
    take<&ops::OpTable::pick, ops::PickArgs>();
  }

 private:
  template <auto kOp, class Args>
  void take() {
    table_.*kOp = [](ops::Device& device, const Args& args) noexcept {
      auto& self = static_cast<HostValues&>(device);
      const bool is_step = self.mode_ == Mode::recorded;
      if (is_step) self.inner().begin_step(1);
      (self.inner().ops().*kOp)(self.inner(), args);
      const Status done = is_step ? self.inner().end_step() : self.inner().synchronize();
      EXPECT_TRUE(done.has_value()) << done.error().what;
    };
  }
  Mode mode_;
};

inline std::unique_ptr<ops::Device> make(Mode mode = Mode::eager) {
  return std::make_unique<HostValues>(cuda_device(), mode);
}
inline std::unique_ptr<ops::Device> make_oracle() {
  return ref::make_ref_device(ref::RefMode::oracle);
}

inline double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
  }
  return worst;
}

using ops::testing::random_floats;
using ops::testing::same_bits;

}  // namespace kvasir::backend::cuda::testing
