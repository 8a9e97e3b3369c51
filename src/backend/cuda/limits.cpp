#include "backend/cuda/limits.h"

#include <algorithm>
#include <array>

#include "backend/cuda/detail/products.h"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {
namespace {

constexpr int kRuns = 9, kWarmUps = 3;

// Median milliseconds of f on the device's stream.
template <class F>
double time_ms(CudaDevice& device, F&& f) {
  cudaEvent_t begin = nullptr, end = nullptr;
  device.note(cudaEventCreate(&begin));
  device.note(cudaEventCreate(&end));
  std::array<float, kRuns> times{};
  for (int i = -kWarmUps; i < kRuns; ++i) {
    device.note(cudaEventRecord(begin, device.stream()));
    f();
    device.note(cudaEventRecord(end, device.stream()));
    device.note(cudaEventSynchronize(end));
    float ms = 0;
    device.note(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 0) times[static_cast<std::size_t>(i)] = ms;
  }
  device.note(cudaEventDestroy(begin));
  device.note(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return std::max(1e-6, static_cast<double>(times[kRuns / 2]));
}

Result<double> copy_gb_s(CudaDevice& device) {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  KVASIR_TRY(const Buffer from, device.allocate(kBytes, ops::MemoryKind::device));
  KVASIR_TRY(const Buffer to, device.allocate(kBytes, ops::MemoryKind::device));
  return 2.0 * kBytes / 1e6 / time_ms(device, [&] { device.copy(to.data(), from.data(), kBytes); });
}

Result<double> matmul_gflop_s(CudaDevice& device) {
  constexpr std::uint32_t kSide = 8192;
  constexpr std::size_t kElements = std::size_t{kSide} * kSide;
  KVASIR_TRY(const Buffer operands, device.allocate(4 * kElements, ops::MemoryKind::device));
  KVASIR_TRY(const Buffer out, device.allocate(4 * kElements, ops::MemoryKind::device));
  KVASIR_TRY(const Buffer workspace,
             device.allocate(Blas::kWorkspaceBytes, ops::MemoryKind::device));
  auto* const w = reinterpret_cast<std::uint16_t*>(operands.data());
  KVASIR_TRY(const Buffer numbers, device.allocate(8 * kElements, ops::MemoryKind::device));
  launch_noise(device.queue(), {numbers.f32(), 2 * kElements});
  launch_convert_rows(
      device.queue(),
      {mat_of(ConstMatView(mat_view(numbers.f32(), 2 * kSide, kSide))), w, kSide, 0});
  const BlasProduct product{w, w + kElements, out.f32(), kSide, kSide, kSide, kSide};
  bool ran = true;
  const double ms = time_ms(device, [&] {
    ran = device.products().blas().multiply(product, workspace.data(), device.stream(),
                                            [](const Blas::Run&) { return 0u; }) &&
          ran;
  });
  return ran ? 2e-6 * kSide * static_cast<double>(kElements) / ms : 0.0;
}

}  // namespace

Result<Limits> measure_limits() {
  KVASIR_TRY(const auto device, CudaDevice::make({}));
  Limits out;
  KVASIR_TRY(out.copy_gb_s, copy_gb_s(*device));
  KVASIR_TRY(out.matmul_gflop_s, matmul_gflop_s(*device));
  KVASIR_TRY_DO(device->synchronize());
  return out;
}

}  // namespace kvasir::backend::cuda
