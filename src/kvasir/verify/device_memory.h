// Numbers on their way between a check and a device, whose memory may not be the host's.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "ops/device.h"
#include "tensor/mat_view.h"

namespace kvasir::verify {

// A matrix as the device has it after all ops so far, rows without gaps.
inline std::vector<float> to_host(ops::Device& device, ConstMatView m) {
  std::vector<float> out(std::size_t{m.n_rows} * m.n_cols);
  for (std::uint32_t r = 0; r < m.n_rows; ++r) {
    device.copy(reinterpret_cast<std::byte*>(out.data() + std::size_t{r} * m.n_cols),
                reinterpret_cast<const std::byte*>(m.row(r)), m.n_cols * sizeof(float));
  }
  const Status done = device.synchronize();
  KVASIR_CHECK(done.has_value()) << done.error().what;
  return out;
}

// The other way: the numbers are the device's when this returns.
inline Buffer to_device(ops::Device& device, std::span<const float> values) {
  auto buffer = device.allocate(values.size_bytes());
  KVASIR_CHECK(buffer.has_value()) << buffer.error().what;
  device.copy(buffer->data(), std::as_bytes(values).data(), values.size_bytes());
  const Status done = device.synchronize();
  KVASIR_CHECK(done.has_value()) << done.error().what;
  return *std::move(buffer);
}

}  // namespace kvasir::verify
