// ReferenceTies: a device that chooses a sparse index's positions as the library of the reference
// outputs does. Ours breaks ties towards the lower position (MOD-36); the reference's selection
// leaves open which of equal scores it keeps, and relu makes many scores equal: 0. What it keeps
// follows from the order of its std::nth_element over all keys of the call, those after the query
// included, so the same query may choose otherwise in a longer call.
#pragma once

#include "ops/wrapped_device.h"

namespace kvasir::model {

class ReferenceTies final : public ops::WrappedDevice {
 public:
  explicit ReferenceTies(ops::Device& inner);
};

}  // namespace kvasir::model
