// What gates an activation, the one place of it for act_mul and for products that end with it.
#pragma once

#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/math.cuh"

namespace kvasir::backend::cuda {

__device__ inline float activate(Act activation, float limit, float gate, float up) {
  switch (activation) {
    case Act::silu:
      return silu_of(gate) * up;
    case Act::gelu:
      return gelu_of(gate) * up;
    case Act::gelu_tanh:
      return gelu_tanh_of(gate) * up;
    case Act::sigmoid:
      return sigmoid_of(gate) * up;
    case Act::identity:
      return gate * up;
    case Act::clamped_swiglu: {  // clamps let a NaN through
      const float g = limit < gate ? limit : gate;
      const float u = limit < up ? limit : -limit > up ? -limit : up;
      return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
    }
  }
  return 0.0f;
}

}  // namespace kvasir::backend::cuda
