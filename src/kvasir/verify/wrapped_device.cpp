#include "kvasir/verify/wrapped_device.h"

#include <utility>

namespace kvasir::verify {
namespace {

template <auto Member, class Args>
void forward(ops::Device& device, const Args& args) noexcept {
  ops::Device& inner = static_cast<WrappedDevice&>(device).inner();
  (inner.ops().*Member)(inner, args);
}

}  // namespace

WrappedDevice::WrappedDevice(std::unique_ptr<ops::Device> inner) : inner_(std::move(inner)) {
  using T = ops::OpTable;
  table_ = {.embed = forward<&T::embed>,
            .rms_norm = forward<&T::rms_norm>,
            .linear = forward<&T::linear>,
            .rope = forward<&T::rope>,
            .kv_append = forward<&T::kv_append>,
            .attention = forward<&T::attention>,
            .act_mul = forward<&T::act_mul>,
            .add_scaled = forward<&T::add_scaled>,
            .scale = forward<&T::scale>,
            .gather_rows = forward<&T::gather_rows>,
            .moe_route = forward<&T::moe_route>,
            .moe_experts = ops::moe_experts_composed};
}

}  // namespace kvasir::verify
