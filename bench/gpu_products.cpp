// Matrix products of the CUDA backend: bytes of weights over time as a share of the copy bandwidth
// (few rows), TFLOP/s (many). Weights rotate through more memory than the L2 holds; a step is one
// captured graph, so gaps between launches count.
//   gpu_products [filter]      "layer NAME TYPE", "product TYPE KxN" and "decode TYPE KxN" that
//                              contain the filter
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/detail/cuda_matrix.h"
#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/device/rows.h"
#include "ops/fused.h"

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

// Random numbers as a packed weight, made on the device: bf16 rows, or codes with scales as MLX's
// groups of 64 or GGUF's blocks have them. What quantized weights come to does not matter here.
constexpr const char* kTypes[] = {"bf16", "4", "8", "q4_0", "q8_0", "q4_k"};
std::unique_ptr<CudaMatrix> noise_weight(CudaDevice& device,
                                         const std::string& type,
                                         std::uint32_t n_out,
                                         std::uint32_t n_in) {
  using namespace backend::cuda;
  auto m = std::make_unique<CudaMatrix>(n_out, n_in);
  Weight& w = m->weight;
  w.n_out = n_out;
  w.n_in = w.k = n_in;
  const bool is_dense = type == "bf16", is_mlx = type == "4" || type == "8";
  w.code = is_dense ? Code::bf16 : type[0] == '4' || type[1] == '4' ? Code::nibble : Code::byte;
  w.scale = type == "q4_k" ? ScaleKind::f32 : is_mlx ? ScaleKind::bf16 : ScaleKind::f16;
  w.has_bias = is_mlx || type == "q4_k";
  w.group = is_dense ? kChunkK : is_mlx ? 64 : 32;
  w.offset = type == "q4_0" ? 8 : type == "q8_0" ? 128 : 0;
  w.chunk_bytes = codes_bytes(w.code);
  if (!is_dense)
    w.chunk_bytes += kChunkK / w.group * kTileRows * scale_bytes(w.scale) * (w.has_bias ? 2 : 1);
  const std::size_t n_tiles = (n_out + kTileRows - 1) / kTileRows;
  const std::size_t size = w.code == Code::bf16 ? std::size_t{n_out} * n_in * 2
                                                : n_tiles * chunks_of(n_in) * w.chunk_bytes;
  m->data = *device.allocate(size, ops::MemoryKind::device);
  w.data = m->data.data();
  if (w.code != Code::bf16) {
    launch_noise(device.queue(), {m->data.f32(), size / 4});
    return m;
  }
  const Buffer noise = *device.allocate(size * 2, ops::MemoryKind::device);
  launch_noise(device.queue(), {noise.f32(), size / 2});
  launch_convert_rows(device.queue(), {{noise.f32(), n_out, n_in, n_in}, m->data.data(), n_in, 0});
  (void)device.synchronize();
  return m;
}

// So many weights that they fill kRotated.
std::vector<std::unique_ptr<CudaMatrix>> rotated(CudaDevice& device,
                                                 const std::string& type,
                                                 std::uint32_t n_out,
                                                 std::uint32_t n_in) {
  std::vector<std::unique_ptr<CudaMatrix>> out;
  out.push_back(noise_weight(device, type, n_out, n_in));
  const std::size_t n = std::clamp<std::size_t>(kRotated / out[0]->size_bytes(), 1, 48);
  while (out.size() < n) out.push_back(noise_weight(device, type, n_out, n_in));
  return out;
}

Buffer noise_rows(CudaDevice& device, std::size_t n) {
  Buffer out = *device.allocate(n * 4, ops::MemoryKind::device);
  backend::cuda::launch_noise(device.queue(), {out.f32(), n});
  return out;
}

// f as a step of its own: a captured graph from the second time on.
template <class F>
double time_step_ms(CudaDevice& device, std::uint32_t n_rows, F&& f) {
  return time_ms(device, [&] {
    device.begin_step(n_rows);
    f();
    const Status done = device.end_step();
    if (!done) std::printf("FAILED: %s\n", done.error().what.c_str());
  });
}

struct Case {
  std::string type;
  std::uint32_t n_in, n_out, n_rows;
};

void measure(CudaDevice& device,
             const Case& c,
             const std::vector<std::unique_ptr<CudaMatrix>>& weights,
             double copy) {
  const Buffer x = noise_rows(device, std::size_t{c.n_rows} * c.n_in),
               out = noise_rows(device, std::size_t{c.n_rows} * c.n_out);
  const std::size_t n_calls = c.n_rows > 64 ? 1 : std::max<std::size_t>(weights.size(), 8);
  const double ms =
      time_step_ms(device, c.n_rows,
                   [&] {
                     for (std::size_t i = 0; i < n_calls; ++i)
                       device.ops().linear(device, {.x = {x.f32(), c.n_rows, c.n_in, c.n_in},
                                                    .weight = weights[i % weights.size()].get(),
                                                    .bias = nullptr,
                                                    .out = mat_view(const_cast<Buffer&>(out).f32(),
                                                                    c.n_rows, c.n_out)});
                   }) /
      static_cast<double>(n_calls);
  const double gb_s = static_cast<double>(weights[0]->size_bytes()) / ms / 1e6;
  const double tflops = 2.0 * c.n_rows * c.n_in * c.n_out / ms / 1e9;
  std::printf("%-5s K %5u n %6u rows %4u: %8.2f us %5.1f %% of copy %6.1f TFLOP/s\n",
              c.type.c_str(), c.n_in, c.n_out, c.n_rows, ms * 1e3, 100 * gb_s / copy, tflops);
  std::fflush(stdout);
}

// Codes to rows of bf16, as many rows of x are multiplied by: bytes read and written over time.
void measure_decode(CudaDevice& device,
                    const std::string& type,
                    std::uint32_t n_in,
                    std::uint32_t n_out,
                    double copy) {
  const auto weights = rotated(device, type, n_out, n_in);
  const std::size_t out_bytes = std::size_t{n_out} * n_in * 2;
  Buffer out = *device.allocate(out_bytes, ops::MemoryKind::device);
  const double ms =
      time_ms(device,
              [&] {
                for (const auto& w : weights)
                  backend::cuda::launch_decode(device.queue(), {w->weight, out.data(), 0, n_out});
              }) /
      static_cast<double>(weights.size());
  const double gb_s = static_cast<double>(weights[0]->size_bytes() + out_bytes) / ms / 1e6;
  std::printf("decode %s K %5u n %6u: %8.2f us %5.1f %% of copy\n", type.c_str(), n_in, n_out,
              ms * 1e3, 100 * gb_s / copy);
  std::fflush(stdout);
}

struct LayerShape {
  const char* name;
  std::uint32_t hidden, q, kv, ff;
};

// Norms and products of layers in a row, without attention: bytes of their weights over time.
void measure_layers(CudaDevice& device,
                    const LayerShape& s,
                    const std::string& type,
                    std::uint32_t n_rows,
                    double copy) {
  constexpr std::size_t kLayers = 8;
  struct Layer {
    std::unique_ptr<CudaMatrix> q, k, v, o, gate, up, down;
  };
  std::vector<Layer> layers;
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < kLayers; ++i) {
    const auto make = [&](std::uint32_t n_out, std::uint32_t n_in) {
      auto m = noise_weight(device, type, n_out, n_in);
      n_bytes += m->size_bytes();
      return m;
    };
    layers.push_back({make(s.q, s.hidden), make(s.kv, s.hidden), make(s.kv, s.hidden),
                      make(s.hidden, s.q), make(s.ff, s.hidden), make(s.ff, s.hidden),
                      make(s.hidden, s.ff)});
  }
  const auto rows = [&](std::uint32_t n) { return noise_rows(device, std::size_t{n_rows} * n); };
  Buffer x = rows(s.hidden), branch = rows(s.hidden), normed = rows(s.hidden),
         weight = noise_rows(device, s.hidden), qkv = rows(s.q + 2 * s.kv), attended = rows(s.q),
         gate_up = rows(2 * s.ff);
  const auto view = [&](Buffer& b, std::uint32_t n) { return mat_view(b.f32(), n_rows, n); };
  const auto add_norm = [&] {
    device.ops().add_norm(device, {.x = view(x, s.hidden),
                                   .y = view(branch, s.hidden),
                                   .alpha = 1.0f,
                                   .weight = weight.f32(),
                                   .eps = 1e-5f,
                                   .out = view(normed, s.hidden)});
  };
  const double ms = time_step_ms(device, n_rows, [&] {
    for (const Layer& l : layers) {
      const ops::LinearPart attention[] = {{l.q.get(), nullptr},
                                           {l.k.get(), nullptr},
                                           {l.v.get(), nullptr}},
                            mlp[] = {{l.gate.get(), nullptr}, {l.up.get(), nullptr}};
      add_norm();
      device.ops().linear_group(
          device,
          {.x = view(normed, s.hidden), .parts = attention, .out = view(qkv, s.q + 2 * s.kv)});
      device.ops().scale(
          device,
          {.x = view(attended, s.q), .alpha = 1.0f, .softcap = 0.0f});  // stands for attention
      device.ops().linear(device, {.x = view(attended, s.q),
                                   .weight = l.o.get(),
                                   .bias = nullptr,
                                   .out = view(branch, s.hidden)});
      add_norm();
      device.ops().gated_linear(device, {.x = view(normed, s.hidden),
                                         .parts = mlp,
                                         .activation = ops::Activation::silu,
                                         .gate_up = view(gate_up, 2 * s.ff)});
      device.ops().linear(device, {.x = view(gate_up, 2 * s.ff).columns(0, s.ff),
                                   .weight = l.down.get(),
                                   .bias = nullptr,
                                   .out = view(branch, s.hidden)});
    }
  });
  std::printf("layer %-12s %-5s rows %3u: %8.2f us %5.1f %% of copy\n", s.name, type.c_str(),
              n_rows, ms * 1e3 / kLayers, 100 * static_cast<double>(n_bytes) / ms / 1e6 / copy);
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
  const auto passes = [&](const std::string& name) {
    return name.find(filter) != std::string::npos;
  };
  for (const LayerShape& s : {LayerShape{"llama-3.1-8b", 4096, 4096, 1024, 14336},
                              LayerShape{"qwen3-0.6b", 1024, 2048, 1024, 3072}}) {
    for (const char* type : kTypes) {
      if (!passes(std::string("layer ") + s.name + " " + type)) continue;
      for (const std::uint32_t n_rows : {1u, 16u, 64u})
        measure_layers(device, s, type, n_rows, copy);
    }
  }
  for (const char* type : {"4", "8", "q4_0", "q4_k"})
    for (const auto& [n_in, n_out] : {std::pair{4096u, 14336u}, {14336u, 4096u}})
      if (passes(std::string("decode ") + type + " " + std::to_string(n_in) + "x" +
                 std::to_string(n_out)))
        measure_decode(device, type, n_in, n_out, copy);
  const std::pair<std::uint32_t, std::uint32_t> shapes[] = {
      {4096, 4096}, {4096, 6144}, {4096, 28672}, {14336, 4096}, {4096, 128256},
      {1024, 4096}, {2048, 1024}, {1024, 6144},  {3072, 1024}};
  for (const char* type : kTypes) {
    for (const auto& [n_in, n_out] : shapes) {
      if (!passes(std::string("product ") + type + " " + std::to_string(n_in) + "x" +
                  std::to_string(n_out)))
        continue;
      const auto weights = rotated(device, type, n_out, n_in);
      for (const std::uint32_t n_rows : {1u, 8u, 16u, 64u, 512u, 4096u}) {
        if (n_rows > 64 && (n_out > 100'000 || n_in < 4096 || type[0] != 'b')) continue;
        measure(device, {type, n_in, n_out, n_rows}, weights, copy);
      }
    }
  }
  return 0;
}
