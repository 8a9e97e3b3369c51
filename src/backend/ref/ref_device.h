// The reference backend: slow, single-threaded, plain loops. `oracle` computes every op in f64 from
// exactly decoded weights and is what goldens are compared with. `mirror` follows backend/cpu's
// plan (docs/numerics.md): the same roundings everywhere and the same order of additions in linear,
// whose results equal backend/cpu's bit for bit. `mirror_cuda` rounds weights and products' inputs
// as backend/cuda does and computes everything else as the oracle.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/device.h"

namespace kvasir::backend::ref {

enum class RefMode : std::uint8_t { oracle, mirror, mirror_cuda };

// int8_activations: the mirror follows backend/cpu's mode of that name.
std::unique_ptr<ops::Device> make_ref_device(RefMode mode, bool int8_activations = false);

}  // namespace kvasir::backend::ref
