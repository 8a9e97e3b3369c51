#include "backend/cuda/detail/products.h"

#include <algorithm>
#include <atomic>

#include "backend/cuda/device/rows.h"
#include "backend/cuda/device/wide.h"

namespace kvasir::backend::cuda {
namespace {

constexpr std::size_t kPinnedHalf = std::size_t{16} << 20;

Error upload_failed(cudaError_t error) {
  return {Errc::device, std::string("uploading a weight: ") + cudaGetErrorString(error)};
}

}  // namespace

Products& CudaDevice::products() noexcept {
  if (!products_) products_ = std::make_shared<Products>(*this);
  return *products_;
}

ThreadPool& Products::pool() {
  if (!pool_) pool_ = std::make_unique<ThreadPool>(default_thread_count());
  return *pool_;
}

// Two halves of pinned memory: one is filled while the other is on its way.
Status Products::upload(std::byte* to,
                        std::size_t unit_bytes,
                        std::size_t n_units,
                        const std::function<void(std::size_t, std::byte*)>& fill) {
  const std::size_t half = std::max(kPinnedHalf, unit_bytes);
  if (pinned_.size_bytes() < 2 * half) {
    KVASIR_TRY(pinned_, device_.allocate(2 * half, ops::MemoryKind::host));
  }
  const std::size_t per_half = half / unit_bytes;
  cudaError_t error = cudaSuccess;
  int side = 0;
  cudaEvent_t done[2] = {};
  for (cudaEvent_t& event : done) {
    if (!error) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  for (std::size_t first = 0; first < n_units && !error; first += per_half, side ^= 1) {
    const std::size_t n = std::min(per_half, n_units - first);
    error = cudaEventSynchronize(done[side]);
    std::byte* const from = pinned_.data() + static_cast<std::size_t>(side) * half;
    std::atomic<std::size_t> next{0};
    const auto work = [&](int) {
      for (std::size_t i = next++; i < n; i = next++) fill(first + i, from + i * unit_bytes);
    };
    n* unit_bytes > 65'536 ? pool().run(work) : work(0);
    if (!error)
      error = cudaMemcpyAsync(to + first * unit_bytes, from, n * unit_bytes, cudaMemcpyHostToDevice,
                              device_.stream());
    if (!error) error = cudaEventRecord(done[side], device_.stream());
  }
  // The memory is the next weight's: both halves must have left it.
  for (cudaEvent_t event : done) {
    if (!error) error = cudaEventSynchronize(event);
    if (event) cudaEventDestroy(event);
  }
  if (error) return upload_failed(error);
  return {};
}

bool Products::is_converted(ConstMatView x,
                            std::uint32_t k,
                            std::uint32_t tile_rows) const noexcept {
  return converted_at_ == device_.queue().n_changes() && converted_k_ == k &&
         converted_tile_rows_ == tile_rows && converted_from_.data == x.data &&
         converted_from_.n_rows == x.n_rows && converted_from_.n_cols == x.n_cols &&
         converted_from_.stride == x.stride;
}

const void* Products::converted(ConstMatView x, std::uint32_t k, std::uint32_t tile_rows) {
  if (is_converted(x, k, tile_rows)) return converted_data_;
  const std::uint32_t rows = tile_rows == kWideTiles ? wide_rows(x.n_rows) : tile_rows;
  const std::size_t n_tiles = rows == 0 ? 0 : (x.n_rows + rows - 1) / rows;
  std::uint16_t* out = nullptr;
  if (tile_rows == kWideTiles) {
    const std::uint32_t whole = chunks_of(k) * kChunkK;
    out = device_.workspace<std::uint16_t>(kConverted, n_tiles * rows * whole);
    launch_convert_wide(device_.queue(), {mat_of(x), nullptr, out, whole, rows});
  } else if (tile_rows > 0) {
    out = device_.workspace<std::uint16_t>(
        kConverted, n_tiles * rows * tiled_chunks(k) * std::size_t{kTiledRow});
    launch_convert_tiles(device_.queue(), {mat_of(x), out, k, rows}, rows);
  } else {
    out = device_.workspace<std::uint16_t>(kConverted, std::size_t{x.n_rows} * k);
    launch_convert_rows(device_.queue(), {mat_of(x), out, k, 0});
  }
  remember(x, k, tile_rows, out);
  return out;
}

const void* Products::wide_tiles(const void* rows, std::uint32_t n_rows, std::uint32_t k) {
  const std::uint32_t tile = wide_rows(n_rows), whole = chunks_of(k) * kChunkK;
  auto* const out = device_.workspace<std::uint16_t>(
      kRetiled, std::size_t{(n_rows + tile - 1) / tile} * tile * whole);
  launch_convert_wide(device_.queue(), {{nullptr, n_rows, k, k}, rows, out, whole, tile});
  return out;
}

void Products::remember(ConstMatView x, std::uint32_t k, std::uint32_t tile_rows, void* data) {
  converted_from_ = x;
  converted_k_ = k;
  converted_tile_rows_ = tile_rows;
  converted_at_ = device_.queue().n_changes();
  converted_data_ = data;
}

Bf16Copy Products::copy_of_next(std::uint32_t n_rows, std::uint32_t n_cols, CopyOf of) {
  const int slot = of == CopyOf::product ? kConvertedResult : kConverted;
  if (n_rows > kManyRows) {
    if (n_cols % kPadK != 0) return {};
    return {device_.workspace<std::uint16_t>(slot, std::size_t{n_rows} * n_cols), n_cols, 0};
  }
  if (!has_wide_products() || n_cols % kChunkK != 0) return {};
  const std::uint32_t tile = wide_rows(n_rows), n_tiles = (n_rows + tile - 1) / tile;
  return {device_.workspace<std::uint16_t>(slot, std::size_t{n_tiles} * tile * n_cols), n_cols,
          tile};
}

void Products::keep_copy(ConstMatView x, const Bf16Copy& copy) {
  if (copy.data) remember(x, x.n_cols, copy.tile_rows > 0 ? kWideTiles : 0, copy.data);
}

void Products::keep_converted(std::uint64_t since, ConstMatView out) {
  const auto end = [](ConstMatView m) { return m.row(m.n_rows - 1) + m.n_cols; };
  const bool overlap = out.n_rows > 0 && converted_from_.n_rows > 0 &&
                       out.data < end(converted_from_) && converted_from_.data < end(out);
  if (converted_at_ == since && !overlap) converted_at_ = device_.queue().n_changes();
}

const Products::Table* Products::find_table(const void* list, std::size_t n, int role) {
  if (n_freed_ != CudaMatrix::n_freed()) {  // an address may stand for another matrix now
    if (!tables_.empty()) device_.note(cudaStreamSynchronize(device_.stream()));
    tables_.clear();
    n_freed_ = CudaMatrix::n_freed();
  }
  const auto found = std::find_if(tables_.begin(), tables_.end(), [&](const Known& t) {
    return t.list == list && t.n == n && t.role == role;
  });
  return found == tables_.end() ? nullptr : &found->table;
}

Products::Table Products::make_table(
    Known known,
    const std::function<const ops::PackedMatrix*(std::size_t)>& matrix,
    const std::function<const float*(std::size_t)>& bias) {
  std::vector<Weight> weights;
  std::vector<const float*> biases;
  bool has_bias = false;
  std::uint32_t chunk_bytes = 0, scale_kinds = 0;
  for (std::size_t i = 0; i < known.n; ++i) {
    weights.push_back(matrix_of(matrix(i)).weight);
    KVASIR_CHECK(weights[i].code == weights[0].code && weights[i].has_bias == weights[0].has_bias)
        << "one type for all experts of a layer";
    scale_kinds |= 1u << static_cast<unsigned>(weights[i].scale);
    chunk_bytes = std::max(chunk_bytes, weights[i].chunk_bytes);
    biases.push_back(bias(i));
    has_bias |= biases[i] != nullptr;
  }
  const std::size_t weights_bytes = known.n * sizeof(Weight);
  auto buffer = device_.allocate(weights_bytes + known.n * sizeof(float*), ops::MemoryKind::device);
  KVASIR_CHECK(buffer.has_value()) << buffer.error().what;
  known.data = *std::move(buffer);
  std::byte* const at = known.data.data();
  // The vectors may be gone before copies from pinned memory have run.
  device_.note(
      cudaMemcpyAsync(at, weights.data(), weights_bytes, cudaMemcpyHostToDevice, device_.stream()));
  device_.note(cudaMemcpyAsync(at + weights_bytes, biases.data(), known.n * sizeof(float*),
                               cudaMemcpyHostToDevice, device_.stream()));
  device_.note(cudaStreamSynchronize(device_.stream()));
  known.table = {reinterpret_cast<const Weight*>(at),
                 has_bias ? reinterpret_cast<const float* const*>(at + weights_bytes) : nullptr,
                 weights[0], chunk_bytes, scale_kinds};
  tables_.push_back(std::move(known));
  return tables_.back().table;
}

Products::Table Products::table(std::span<const ops::PackedMatrix* const> matrices) {
  if (const Table* known = find_table(matrices.data(), matrices.size(), -1)) return *known;
  return make_table(
      {matrices.data(), matrices.size(), -1, {}, {}}, [&](std::size_t i) { return matrices[i]; },
      [](std::size_t) { return static_cast<const float*>(nullptr); });
}

Products::Table Products::table(std::span<const ops::LinearPart> parts) {
  const void* const first = parts[0].weight;
  if (const Table* known = find_table(first, parts.size(), -1)) return *known;
  return make_table(
      {first, parts.size(), -1, {}, {}}, [&](std::size_t i) { return parts[i].weight; },
      [&](std::size_t i) { return parts[i].bias; });
}

Products::Table Products::table(std::span<const ops::ExpertWeights> bank, Role role) {
  if (const Table* known = find_table(bank.data(), bank.size(), role)) return *known;
  return make_table(
      {bank.data(), bank.size(), role, {}, {}},
      [&](std::size_t i) {
        return role == kGate ? bank[i].gate : role == kUp ? bank[i].up : bank[i].down;
      },
      [&](std::size_t i) {
        return role == kGate ? bank[i].gate_bias
               : role == kUp ? bank[i].up_bias
                             : bank[i].down_bias;
      });
}

}  // namespace kvasir::backend::cuda
