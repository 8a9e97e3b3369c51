#include "ops/wrapped_device.h"

#include <utility>

namespace kvasir::ops {
namespace {

template <auto Member, class Args>
void forward(Device& device, const Args& args) noexcept {
  Device& inner = static_cast<WrappedDevice&>(device).inner();
  (inner.ops().*Member)(inner, args);
}

}  // namespace

WrappedDevice::WrappedDevice(std::unique_ptr<Device> inner) : WrappedDevice(*inner) {
  owned_ = std::move(inner);
}

WrappedDevice::WrappedDevice(Device& inner) : inner_(inner) {
  using T = OpTable;
  table_ = {.embed = forward<&T::embed>,
            .rms_norm = forward<&T::rms_norm>,
            .layer_norm = forward<&T::layer_norm>,
            .linear = forward<&T::linear>,
            .rope = forward<&T::rope>,
            .kv_append = forward<&T::kv_append>,
            .kv_convert = forward<&T::kv_convert>,
            .attention = forward<&T::attention>,
            .act_mul = forward<&T::act_mul>,
            .gate_rows = forward<&T::gate_rows>,
            .add_scaled = forward<&T::add_scaled>,
            .scale = forward<&T::scale>,
            .gather_rows = forward<&T::gather_rows>,
            .l2_norm = forward<&T::l2_norm>,
            .causal_conv = forward<&T::causal_conv>,
            .delta_gates = forward<&T::delta_gates>,
            .gated_delta = forward<&T::gated_delta>,
            .latent_append = forward<&T::latent_append>,
            .latent_attention = forward<&T::latent_attention>,
            .index_select = forward<&T::index_select>,
            .head_linear = head_linear_composed,
            .moe_route = forward<&T::moe_route>,
            .moe_experts = moe_experts_composed,
            .pick = forward<&T::pick>};
  if (!inner.shares_host_memory()) table_.moe_experts = forward<&T::moe_experts>;
}

}  // namespace kvasir::ops
