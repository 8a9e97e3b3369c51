// Planted faults: a device that computes one thing wrongly on purpose. A check that does not notice
// is no check (DESIGN §5).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "ops/wrapped_device.h"

namespace kvasir::verify {

enum class Fault : std::uint8_t {
  rope_position,        // queries get position + 1, keys their own
  skipped_norm_weight,  // the first norm of the model forgets its weight
  swapped_kv_head,  // keys and values of heads 0 and 1 change places; with a single head, its keys
                    // and values; of a latent row, its halves
  negated_index_key,  // of a sparse index
  row_count           // a product's last bit depends on whether it has one row or more
};

inline constexpr std::array kGoldenFaults{Fault::rope_position, Fault::skipped_norm_weight,
                                          Fault::swapped_kv_head};
inline constexpr std::array kIndexFaults{
    Fault::negated_index_key};  // of models with a sparse index

std::string_view name_of(Fault fault) noexcept;

class PlantedDevice : public ops::WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  // Whether it has computed anything wrongly yet: a model without rope cannot rope wrongly.
  bool took_place() const noexcept { return took_place_; }

 protected:
  bool took_place_ = false;
};
std::unique_ptr<PlantedDevice> plant(Fault fault, std::unique_ptr<ops::Device> device);

}  // namespace kvasir::verify
