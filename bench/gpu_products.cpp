// Matrix products of the CUDA backend: bytes of weights over time as a share of the copy bandwidth
// (few rows), TFLOP/s (many). Weights rotate through more memory than the L2 holds; a step is one
// captured graph, so gaps between launches count.
//   gpu_products [filter]      rows whose line contains the filter
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/detail/cuda_matrix.h"
#include "backend/cuda/detail/cuda_ops.h"
#include "base/half.h"

namespace {

using namespace kvasir;
using backend::cuda::CudaDevice;
using backend::cuda::CudaMatrix;

constexpr std::size_t kRotated = std::size_t{512} << 20;  // bytes of weights in one round

// Milliseconds of f on the device's stream: the median of some runs after some that warm up.
template <class F>
double time_ms(CudaDevice& device, F&& f) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int i = 0; i < 13; ++i) {
    cudaEventRecord(begin, device.stream());
    f();
    cudaEventRecord(end, device.stream());
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 4) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(times[4]);
}

double copy_gb_s(CudaDevice& device) {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  const Buffer from = *device.allocate(kBytes, ops::MemoryKind::device),
               to = *device.allocate(kBytes, ops::MemoryKind::device);
  const double ms = time_ms(device, [&] { device.copy(to.data(), from.data(), kBytes); });
  return 2.0 * kBytes / ms / 1e6;
}

// Random rows of a stored type: MLX's 4- and 8-bit groups of 64, or bf16.
struct Stored {
  Stored(const std::string& type, std::uint32_t n_out, std::uint32_t n_in) {
    m.type = *codec::find_weight_type(type);
    const auto& info = codec::info(m.type);
    m.n_out = n_out;
    m.n_in = n_in;
    m.codes_stride = n_in / info.block * info.block_bytes;
    codes.resize(m.codes_stride * n_out);
    std::mt19937_64 rng{1};
    for (std::size_t i = 0; i + 8 <= codes.size(); i += 8) {
      const std::uint64_t word = rng();
      std::memcpy(codes.data() + i, &word, 8);
    }
    if (!info.quantized) {  // exponents near those of weights
      for (std::size_t i = 1; i < codes.size(); i += 2)
        codes[i] = (codes[i] & std::byte{0x81}) | std::byte{0x3c};
    }
    m.planes.codes = codes.data();
    if (info.scale_plane != codec::ScalePlane::floats) return;
    m.scales_stride = n_in / info.group * 2;
    halves.resize(m.scales_stride / 2 * n_out);
    for (auto& h : halves) h = to_bf16(0.01f + 0.01f * static_cast<float>(rng() % 100) / 100).bits;
    m.planes.scales = m.planes.biases = reinterpret_cast<const std::byte*>(halves.data());
    m.planes.scale_type = codec::ScaleType::bf16;
  }
  codec::WeightMatrix m;
  std::vector<std::byte> codes;
  std::vector<std::uint16_t> halves;
};

// The packed weight and copies of it, so many that they fill kRotated.
std::vector<std::unique_ptr<ops::PackedMatrix>> copies_of(CudaDevice& device,
                                                          const Stored& stored) {
  std::vector<std::unique_ptr<ops::PackedMatrix>> out;
  out.push_back(*device.pack(stored.m, {}));
  const auto& first = static_cast<const CudaMatrix&>(*out[0]);
  const std::size_t n = std::clamp<std::size_t>(kRotated / first.size_bytes(), 1, 64);
  while (out.size() < n) {
    auto copy = std::make_unique<CudaMatrix>(first.n_out(), first.n_in());
    copy->data = *device.allocate(first.size_bytes(), ops::MemoryKind::device);
    copy->weight = first.weight;
    copy->weight.data = copy->data.data();
    device.copy(copy->data.data(), first.data.data(), first.size_bytes());
    out.push_back(std::move(copy));
  }
  return out;
}

struct Case {
  std::string type;
  std::uint32_t n_in, n_out, n_rows;
};

void measure(CudaDevice& device, const Case& c, const Stored& stored, double copy) {
  const auto weights = copies_of(device, stored);
  const Buffer x = *device.allocate(std::size_t{c.n_rows} * c.n_in * 4, ops::MemoryKind::device);
  const Buffer out = *device.allocate(std::size_t{c.n_rows} * c.n_out * 4, ops::MemoryKind::device);
  std::vector<float> values(std::size_t{c.n_rows} * c.n_in);
  std::mt19937 rng{2};
  for (float& v : values) v = static_cast<float>(rng()) * 0x1p-32f - 0.5f;
  device.copy(x.data(), reinterpret_cast<const std::byte*>(values.data()), values.size() * 4);
  (void)device.synchronize();
  const std::size_t n_calls = c.n_rows > 64 ? 1 : std::max<std::size_t>(weights.size(), 16);
  const double ms =
      time_ms(device,
              [&] {
                device.begin_step(c.n_rows);
                for (std::size_t i = 0; i < n_calls; ++i)
                  device.ops().linear(device, {.x = {x.f32(), c.n_rows, c.n_in, c.n_in},
                                               .weight = weights[i % weights.size()].get(),
                                               .bias = nullptr,
                                               .out = mat_view(out.f32(), c.n_rows, c.n_out)});
                const Status done = device.end_step();
                if (!done) std::printf("FAILED: %s\n", done.error().what.c_str());
              }) /
      static_cast<double>(n_calls);
  const double gb_s = static_cast<double>(weights[0]->size_bytes()) / ms / 1e6;
  const double tflops = 2.0 * c.n_rows * c.n_in * c.n_out / ms / 1e9;
  std::printf("%-12s K %6u n %7u rows %5u: %9.2f us %8.0f GB/s %5.1f %% of copy %7.1f TFLOP/s\n",
              c.type.c_str(), c.n_in, c.n_out, c.n_rows, ms * 1e3, gb_s, 100 * gb_s / copy, tflops);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  auto made = backend::cuda::make_cuda_device({});
  if (!made) {
    std::printf("%s\n", made.error().what.c_str());
    return 1;
  }
  auto& device = static_cast<CudaDevice&>(**made);
  const double copy = copy_gb_s(device);
  std::printf("%s: copy %.0f GB/s (read and written)\n", device.label().c_str(), copy);
  const std::pair<std::uint32_t, std::uint32_t> shapes[] = {
      {4096, 4096},  {4096, 1024},   {4096, 6144}, {4096, 14336}, {4096, 28672},
      {14336, 4096}, {4096, 128256}, {1024, 1024}, {1024, 3072},  {3072, 1024}};
  for (const char* type : {"bf16", "affine4g64", "affine8g64"}) {
    for (const auto& [n_in, n_out] : shapes) {
      const std::string name =
          std::string(type) + " " + std::to_string(n_in) + "x" + std::to_string(n_out);
      if (name.find(filter) == std::string::npos) continue;
      const Stored stored(type, n_out, n_in);
      for (const std::uint32_t n_rows : {1u, 4u, 8u, 16u, 64u, 512u, 4096u}) {
        if (n_rows > 64 && (n_out > 100'000 || n_in < 4096)) continue;
        measure(device, {type, n_in, n_out, n_rows}, stored, copy);
      }
    }
  }
  return 0;
}
