#include "backend/cuda/cuda_device.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/team/team_device.h"

namespace kvasir::backend::cuda {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
constexpr std::size_t kRecordedTokens = 64;  // steps of at most so many run as graphs
constexpr int kOldestMajor = 8;              // sm_80

constexpr ops::OpTable kOps{.embed = &embed,
                            .rms_norm = &rms_norm,
                            .layer_norm = &layer_norm,
                            .linear = &linear,
                            .rope = &rope,
                            .kv_append = &kv_append,
                            .kv_convert = &kv_convert,
                            .attention = &attention,
                            .act_mul = &act_mul,
                            .gate_rows = &gate_rows,
                            .add_scaled = &add_scaled,
                            .scale = &scale,
                            .gather_rows = &gather_rows,
                            .l2_norm = &l2_norm,
                            .causal_conv = &causal_conv,
                            .delta_gates = &delta_gates,
                            .gated_delta = &gated_delta,
                            .latent_append = &latent_append,
                            .latent_attention = &latent_attention,
                            .index_select = &index_select,
                            .head_linear = &head_linear,
                            .moe_route = &moe_route,
                            .moe_experts = &moe_experts,
                            .linear_group = &linear_group,
                            .gated_linear = &gated_linear,
                            .gated_mlp = &gated_mlp,
                            .add_norm = &add_norm,
                            .query_key = &query_key,
                            .prepared_attention = &prepared_attention,
                            .pick = &pick};

void free_device(void*, std::byte* data, std::size_t) noexcept { cudaFree(data); }
void free_host(void*, std::byte* data, std::size_t) noexcept { cudaFreeHost(data); }

Error device_error(std::string_view what, cudaError_t error) {
  return {Errc::device, std::string(what) + ": " + cudaGetErrorString(error)};
}

}  // namespace

Result<std::unique_ptr<CudaDevice>> CudaDevice::make(const CudaOptions& options) {
  int n_devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&n_devices); error || n_devices == 0)
    return unsupported("no CUDA device: " + std::string(cudaGetErrorString(error)));
  const int ordinal = options.ordinals.front();
  if (ordinal < 0 || ordinal >= n_devices)
    return invalid("CUDA device " + std::to_string(ordinal) + ": this machine has " +
                   std::to_string(n_devices) + ", counted from 0");
  cudaDeviceProp facts{};
  if (const cudaError_t error = cudaGetDeviceProperties(&facts, ordinal))
    return device_error("cudaGetDeviceProperties", error);
  if (facts.major < kOldestMajor)
    return unsupported(std::string(facts.name) + " is older than compute capability 8.0");
  auto device = std::make_unique<CudaDevice>();
  device->label_ = "cuda-" + std::string(facts.name);
  device->n_multiprocessors_ = facts.multiProcessorCount;
  device->list_.use_graphs(options.use_graphs);
  if (const cudaError_t error = cudaSetDevice(ordinal)) return device_error("cudaSetDevice", error);
  if (const cudaError_t error = cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking))
    return device_error("cudaStreamCreate", error);
  device->list_.set_stream(device->stream_);
  for (StepOnItsWay& step : device->steps_) {
    cudaError_t error = cudaEventCreate(&step.begun);
    if (!error) error = cudaEventCreate(&step.done);
    if (error) return device_error("cudaEventCreate", error);
  }
  KVASIR_TRY(Buffer first, device->allocate(kStagingBytes, ops::MemoryKind::host));
  KVASIR_TRY(Buffer second, device->allocate(kStagingBytes, ops::MemoryKind::host));
  KVASIR_TRY(Buffer twin, device->allocate(kStagingBytes, ops::MemoryKind::device));
  device->staging_.set_buffers(std::move(first), std::move(second), std::move(twin));
  return device;
}

CudaDevice::~CudaDevice() {
  if (stream_) {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  for (StepOnItsWay& step : steps_) {
    if (step.begun) cudaEventDestroy(step.begun);
    if (step.done) cudaEventDestroy(step.done);
  }
}

const ops::OpTable& CudaDevice::ops() const noexcept { return kOps; }

Result<Buffer> CudaDevice::allocate(std::size_t size_bytes, ops::MemoryKind kind) {
  void* data = nullptr;
  const std::size_t asked = std::max<std::size_t>(size_bytes, 1);
  const bool is_host = kind == ops::MemoryKind::host;
  const cudaError_t error = is_host ? cudaMallocHost(&data, asked) : cudaMalloc(&data, asked);
  if (error) {
    cudaGetLastError();  // a refusal is no failure of the step
    return Error{Errc::capacity, std::string("no ") + (is_host ? "pinned" : "CUDA") +
                                     " memory for a buffer of " + std::to_string(size_bytes) +
                                     " bytes"};
  }
  Buffer buffer(static_cast<std::byte*>(data), size_bytes, is_host ? &free_host : &free_device);
  if (is_host) {
    std::memset(data, 0, asked);
  } else {
    note(cudaMemsetAsync(data, 0, asked, stream_));
  }
  return buffer;
}

void CudaDevice::copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  if (list_.is_recording()) give_work();
  list_.note_change();
  note(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream_));
}

void CudaDevice::begin_step(std::size_t n_tokens) noexcept {
  KVASIR_CHECK(n_steps_ < kMaxSteps) << "await_step() comes first";
  staging_.begin_step(stream_);
  is_begun_ = false;
  if (n_tokens <= kRecordedTokens) {
    list_.record();
  } else {
    note_begun();
  }
}

// The step's first work is about to go to the stream.
void CudaDevice::note_begun() noexcept {
  if (!std::exchange(is_begun_, true)) note(cudaEventRecord(step_at(n_steps_).begun, stream_));
}

// What is on the list goes to the stream.
void CudaDevice::flush() noexcept {
  if (list_.is_recording()) note_begun();
  staging_.upload(stream_);
  if (list_.is_recording()) note(list_.run());
}

void CudaDevice::give_work() noexcept {
  const bool was_recording = list_.is_recording();
  flush();
  if (was_recording) list_.record();
}

void CudaDevice::submit_step() noexcept {
  flush();
  note_begun();
  note(cudaEventRecord(step_at(n_steps_).done, stream_));
  ++n_steps_;
  staging_.end_step(stream_);
}

Status CudaDevice::await_step() noexcept {
  KVASIR_CHECK(n_steps_ > 0) << "no step was submitted";
  const StepOnItsWay& step = step_at(0);
  first_step_ = (first_step_ + 1) % (kMaxSteps + 1);
  --n_steps_;
  note(cudaEventSynchronize(step.done));
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, step.begun, step.done) == cudaSuccess)
    busy_seconds_ += milliseconds * 1e-3;
  if (n_steps_ == 0) retired_.clear();
  return status();
}

Status CudaDevice::end_step() noexcept {
  submit_step();
  return await_step();
}

Status CudaDevice::synchronize() noexcept {
  note(cudaStreamSynchronize(stream_));
  retired_.clear();
  return status();
}

// The first failure since the last call.
Status CudaDevice::status() noexcept {
  note(list_.take_error());
  note(staging_.take_error());
  const cudaError_t failure = std::exchange(failure_, cudaSuccess);
  if (failure == cudaSuccess) return {};
  return device_error(label_, failure);
}

// Makes room by running what is there; what was staged before is staged again where it is needed.
Staging::Place CudaDevice::reserve(std::size_t size_bytes,
                                   const void* key,
                                   std::size_t key_size) noexcept {
  if (!staging_.has_room(size_bytes)) {
    const bool was_recording = list_.is_recording();
    flush();
    note(cudaStreamSynchronize(stream_));
    staging_.restart();
    if (was_recording) list_.record();
  }
  return staging_.reserve(size_bytes, key, key_size);
}

std::byte* CudaDevice::workspace_bytes(int slot, std::size_t size_bytes) noexcept {
  Buffer& buffer = workspaces_[slot];
  if (buffer.size_bytes() < size_bytes) {
    auto larger = allocate(std::bit_ceil(size_bytes), ops::MemoryKind::device);
    KVASIR_CHECK(larger.has_value()) << larger.error().what;
    retired_.push_back(std::exchange(buffer, *std::move(larger)));
  }
  return buffer.data();
}

bool cuda_is_available() noexcept {
  int n_devices = 0;
  if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) return false;
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major >= kOldestMajor;
}

Result<CudaMemory> cuda_memory(int ordinal) {
  if (!cuda_is_available()) return unsupported("no CUDA device");
  std::size_t free_bytes = 0, total_bytes = 0;
  cudaError_t error = cudaSetDevice(ordinal);
  if (!error) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (error) return device_error("cudaMemGetInfo", error);
  return CudaMemory{free_bytes, total_bytes};
}

Result<std::unique_ptr<ops::Device>> make_cuda_device(CudaOptions options) {
  const bool is_default = options.ordinals.size() == 1 && options.ordinals.front() == 0;
  if (!is_default) {  // a team of one also keeps its GPU the current one of whatever thread
    KVASIR_TRY(auto team, TeamDevice::make(options.ordinals, options.use_graphs));
    return std::unique_ptr<ops::Device>(std::move(team));
  }
  KVASIR_TRY(auto device, CudaDevice::make(options));
  return std::unique_ptr<ops::Device>(std::move(device));
}

}  // namespace kvasir::backend::cuda
