// linear and its groups. Up to 64 rows: by whole warpgroups (wide.cpp) where the device has them,
// else by warps, x rounded where it is multiplied (one or two rows) or once before. More than 64 in
// an eager step: cuBLASLt, where it gives the same bits.
#include <algorithm>

#include "backend/cuda/detail/products.h"
#include "backend/cuda/device/product.h"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {
namespace {

constexpr std::size_t kDecodedBytes = std::size_t{128} << 20;  // of a weight in bf16, at a time
constexpr std::uint32_t kProbeRows = 16;

ProductArgs arguments(
    const CudaDevice& device, const Weight& w, ConstMatView x, const float* bias, MatView out) {
  return {.weight = w,
          .x = x.data,
          .x_stride = x.stride,
          .n_rows = x.n_rows,
          .x_is_bf16 = 0,
          .bias = bias,
          .out = out.data,
          .out_stride = out.stride,
          .grouped = {},
          .chunk_bytes = w.chunk_bytes,
          .n_sms = static_cast<std::uint32_t>(device.n_multiprocessors()),
          .n_warps = 0,
          .n_slots = 0};
}

// The own kernel on tiles of bf16 rows.
void launch_tiles(
    CudaDevice& device, const Weight& w, const void* x, const float* bias, MatView out) {
  ProductArgs args = arguments(device, w, {nullptr, out.n_rows, w.n_in, w.k}, bias, out);
  args.x = x;
  args.x_is_bf16 = 1;
  launch_product(device.queue(), args);
}

BlasProduct blas_product(const Weight& w, const void* x, MatView out) {
  return {w.data, x, out.data, out.stride, w.n_out, out.n_rows, w.k};
}

// In how many bits `run` and the own kernel differ for random rows, of which the first and the last
// 16 are compared; all ones: it does not run. `out` is where the true result will be.
std::uint32_t count_other_bits(CudaDevice& device,
                               const Weight& w,
                               MatView out,
                               const Blas::Run& run) {
  const std::uint32_t n = std::min(kProbeRows, out.n_rows);
  const std::size_t noise_bytes = std::size_t{out.n_rows} * w.k * sizeof(float);
  const std::size_t own_bytes = std::size_t{n} * w.n_out * sizeof(float);
  const std::size_t tiles_bytes = std::size_t{kProbeRows} * tiled_chunks(w.k) * kTiledRow * 2;
  std::byte* const memory = device.workspace<std::byte>(
      kProbe, noise_bytes + noise_bytes / 2 + own_bytes + tiles_bytes + 64);
  auto* const noise = reinterpret_cast<float*>(memory);
  std::byte* const x = memory + noise_bytes;
  std::byte* const tiles = x + noise_bytes / 2;
  auto* const own = reinterpret_cast<float*>(tiles + tiles_bytes);
  auto* const counter = reinterpret_cast<std::uint32_t*>(own + std::size_t{n} * w.n_out);
  const ConstMat all{noise, out.n_rows, w.k, w.k};
  launch_noise(device.queue(), {noise, std::size_t{out.n_rows} * w.k});
  launch_convert_rows(device.queue(), {all, x, w.k, 0});
  device.note(cudaMemsetAsync(counter, 0, sizeof(*counter), device.stream()));
  if (!run(blas_product(w, x, out))) return ~0u;
  for (const std::uint32_t first : {0u, out.n_rows - n}) {
    const MatView rows = mat_view(own, n, w.n_out);
    if (!multiply_wide(device, w, x + std::size_t{first} * w.k * 2, nullptr, rows)) {
      launch_convert_tiles(device.queue(),
                           {{all.data + std::size_t{first} * w.k, n, w.k, w.k}, tiles, w.k, 0},
                           rows_of_tile(n));
      launch_tiles(device, w, tiles, nullptr, rows);
    }
    launch_compare(device.queue(),
                   {mat_of(ConstMatView(out.rows(first, n))), mat_of(ConstMatView(rows)), counter});
  }
  std::uint32_t n_different = 1;
  device.note(cudaMemcpyAsync(&n_different, counter, sizeof(n_different), cudaMemcpyDeviceToHost,
                              device.stream()));
  device.note(cudaStreamSynchronize(device.stream()));
  return n_different;
}

// Many rows by cuBLASLt, if it may: x as bf16 rows.
bool multiply_rows(
    CudaDevice& device, const Weight& w, const void* x, const float* bias, MatView out) {
  void* const workspace = device.workspace<std::byte>(kBlas, Blas::kWorkspaceBytes);
  const bool is_done = device.products().blas().multiply(
      blas_product(w, x, out), workspace, device.stream(),
      [&](const Blas::Run& run) { return count_other_bits(device, w, out, run); });
  if (is_done && bias) launch_add_bias(device.queue(), {mat_of(out), bias});
  return is_done;
}

// Many rows of a quantized weight: slabs of it are decoded, then multiplied.
bool multiply_slabs(
    CudaDevice& device, const Weight& w, const void* x, const float* bias, MatView out) {
  const std::uint32_t most = static_cast<std::uint32_t>(std::max<std::size_t>(
      kDecodedBytes / (2 * std::size_t{w.k}) / kTileRows * kTileRows, kTileRows));
  const std::uint32_t n_slab = std::min(most, w.n_out);
  void* const decoded = device.workspace<std::uint16_t>(kDecoded, std::size_t{n_slab} * w.k);
  for (std::uint32_t first = 0; first < w.n_out; first += n_slab) {
    const std::uint32_t n = std::min(n_slab, w.n_out - first);
    launch_decode(device.queue(), {w, decoded, first, n});
    Weight slab{};
    slab.data = decoded;
    slab.n_out = n;
    slab.n_in = w.n_in;
    slab.k = w.k;
    slab.code = Code::bf16;
    slab.group = kChunkK;
    slab.chunk_bytes = codes_bytes(Code::bf16);
    if (!multiply_rows(device, slab, x, bias ? bias + first : nullptr, out.columns(first, n)))
      return false;
  }
  return true;
}

}  // namespace

void launch_grouped(CudaDevice& device, const Products::Table& table, ProductArgs args) noexcept {
  for (std::uint32_t kind = 0; kind < 3; ++kind) {
    if (!(table.scale_kinds >> kind & 1)) continue;
    args.weight.scale = static_cast<ScaleKind>(kind);
    launch_product(device.queue(), args);
  }
}

void linear(ops::Device& device, const ops::LinearArgs& a) noexcept {
  if (a.x.n_rows == 0) return;
  CudaDevice& cuda = cuda_of(device);
  const Weight& w = matrix_of(a.weight).weight;
  if (w.code == Code::f32)
    return launch_product_f32(cuda.queue(), arguments(cuda, w, a.x, a.bias, a.out));
  const ops::LinearPart part{a.weight, a.bias};
  if ((a.x.n_rows <= kManyRows || !cuda.is_eager()) && multiply_wide(cuda, a.x, {&part, 1}, a.out))
    return;
  if (a.x.n_rows <= kLeastRows && is_whole_pieces(a.x, w.n_in))
    return launch_product(cuda.queue(), arguments(cuda, w, a.x, a.bias, a.out));
  Products& products = cuda.products();
  if (a.x.n_rows > kManyRows && cuda.is_eager()) {
    const void* const x = products.converted(a.x, w.k, 0);
    const std::uint64_t at = cuda.queue().n_changes();
    const bool is_done = w.code == Code::bf16 ? multiply_rows(cuda, w, x, a.bias, a.out)
                                              : multiply_slabs(cuda, w, x, a.bias, a.out);
    products.keep_converted(at, a.out);
    if (is_done) return;
    if (multiply_wide(cuda, w, x, a.bias, a.out)) return;
  }
  const void* const x = products.converted(a.x, w.k, rows_of_tile(a.x.n_rows));
  const std::uint64_t at = cuda.queue().n_changes();
  launch_tiles(cuda, w, x, a.bias, a.out);
  products.keep_converted(at, a.out);
}

void head_linear(ops::Device& device, const ops::HeadLinearArgs& a) noexcept {
  if (a.x.n_rows == 0 || a.weights.empty()) return;
  CudaDevice& cuda = cuda_of(device);
  const Products::Table table = cuda.products().table(a.weights);
  const auto n_heads = static_cast<std::uint32_t>(a.weights.size());
  ProductArgs args = arguments(cuda, table.first, a.x, nullptr, a.out);
  args.chunk_bytes = table.chunk_bytes;
  args.grouped = {.weights = table.weights,
                  .biases = nullptr,
                  .items = nullptr,
                  .slots = nullptr,
                  .top_k = 1,
                  .n_items = n_heads,
                  .x_step = a.x_step,
                  .out_step = a.out_step};
  const bool is_whole = is_whole_pieces(a.x, table.first.n_in, a.x_step);
  if (table.first.code != Code::f32 && (a.x.n_rows > kManyRows || !is_whole)) {
    if (a.x_step % 8 != 0) return ops::head_linear_composed(device, a);
    // A head's products read on to its weight's padded end, into the next head's columns.
    const std::uint32_t k = ((n_heads - 1) * a.x_step + table.first.k + kPadK - 1) / kPadK * kPadK;
    args.x_stride = std::max(k, (a.x.n_cols + kPadK - 1) / kPadK * kPadK);
    args.x = cuda.products().converted(a.x, static_cast<std::uint32_t>(args.x_stride), 0);
    args.x_is_bf16 = 1;
  }
  launch_grouped(cuda, table, args);
}

namespace {

bool is_alike(const Weight& a, const Weight& b) noexcept {
  return a.n_out == b.n_out && a.k == b.k && a.code == b.code && a.has_bias == b.has_bias &&
         a.group == b.group && a.scale == b.scale;
}

// How many parts from the first on are of one shape and type.
std::size_t run_of_alike(std::span<const ops::LinearPart> parts) noexcept {
  std::size_t n = 1;
  while (n < parts.size() &&
         is_alike(matrix_of(parts[0].weight).weight, matrix_of(parts[n].weight).weight))
    ++n;
  return n;
}

void multiply_alike(CudaDevice& device,
                    ConstMatView x,
                    std::span<const ops::LinearPart> parts,
                    MatView out) {
  const Products::Table table = device.products().table(parts);
  ProductArgs args = arguments(device, table.first, x, nullptr, out);
  args.chunk_bytes = table.chunk_bytes;
  args.grouped = {.weights = table.weights,
                  .biases = table.biases,
                  .items = nullptr,
                  .slots = nullptr,
                  .top_k = 1,
                  .n_items = static_cast<std::uint32_t>(parts.size()),
                  .x_step = 0,
                  .out_step = table.first.n_out};
  launch_grouped(device, table, args);
}

}  // namespace

// Few rows: parts of one shape in one launch, the same chains.
void linear_group(ops::Device& device, const ops::LinearGroupArgs& a) noexcept {
  if (a.x.n_rows == 0) return;
  if (a.x.n_rows <= kManyRows && multiply_wide(cuda_of(device), a.x, a.parts, a.out)) return;
  if (a.x.n_rows > kFewRows || !is_whole_pieces(a.x, a.x.n_cols))
    return ops::linear_group_composed(device, a);
  std::uint32_t column = 0;
  for (std::size_t i = 0; i < a.parts.size();) {
    const std::size_t n = run_of_alike(a.parts.subspan(i));
    const std::uint32_t n_out = a.parts[i].weight->n_out();
    const MatView out = a.out.columns(column, n_out * static_cast<std::uint32_t>(n));
    if (n > 1) {
      multiply_alike(cuda_of(device), a.x, a.parts.subspan(i, n), out);
    } else {
      linear(device, {.x = a.x, .weight = a.parts[i].weight, .bias = a.parts[i].bias, .out = out});
    }
    column += out.n_cols;
    i += n;
  }
}

}  // namespace kvasir::backend::cuda
