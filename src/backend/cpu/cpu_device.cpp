#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/cpu/detail/cpu_ops.h"
#include "base/check.h"

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr ops::OpTable kOps{.embed = &embed,
                            .rms_norm = &rms_norm,
                            .linear = &linear,
                            .rope = &rope,
                            .kv_append = &kv_append,
                            .attention = &attention,
                            .act_mul = &act_mul,
                            .add_scaled = &add_scaled,
                            .scale = &scale,
                            .gather_rows = &gather_rows,
                            .moe_route = &moe_route,
                            .moe_experts = &ops::moe_experts_composed};

void free_memory(void*, std::byte* data, std::size_t) noexcept { std::free(data); }

const KernelTable& kernels_of(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::automatic) isa = cpu_supports(Isa::avx512) ? Isa::avx512 : Isa::portable;
  if (isa == Isa::avx512) return kAvx512Kernels;
#endif
  static_cast<void>(isa);
  return kPortableKernels;
}

}  // namespace

Result<Buffer> allocate_memory(std::size_t size_bytes) {
  const std::size_t alignment = size_bytes >= kHugePage ? kHugePage : 64;
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  if (rounded < size_bytes) return Error{Errc::capacity, "buffer size overflows"};
  auto* data = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded));
  if (!data) return Error{Errc::capacity, "no memory for a buffer of " + std::to_string(size_bytes) + " bytes"};
  if (alignment == kHugePage) static_cast<void>(madvise(data, rounded, MADV_HUGEPAGE));  // a hint: failure is harmless
  std::memset(data, 0, rounded);
  return Buffer(data, size_bytes, &free_memory);
}

float* Scratch::floats(std::size_t n) {
  if (buffer_.size_bytes() < n * sizeof(float)) {
    auto larger = allocate_memory(n * sizeof(float));
    KVASIR_CHECK(larger.has_value()) << larger.error().what;
    buffer_ = *std::move(larger);
  }
  return buffer_.f32();
}

CpuDevice::CpuDevice(const KernelTable& kernels, int n_threads)
    : kernels_(kernels), pool_(n_threads), per_thread_(static_cast<std::size_t>(n_threads)) {}

const ops::OpTable& CpuDevice::ops() const noexcept { return kOps; }

Result<std::unique_ptr<ops::PackedMatrix>> CpuDevice::pack(const codec::WeightMatrix& weight, ops::PackOptions options) {
  KVASIR_TRY(auto matrix, pack_matrix(weight, options, *this));
  return std::unique_ptr<ops::PackedMatrix>(std::move(matrix));
}

void CpuDevice::copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  std::memcpy(to, from, size_bytes);
}

bool cpu_supports(Isa isa) noexcept {
  if (isa == Isa::automatic || isa == Isa::portable) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

Result<std::unique_ptr<ops::Device>> make_cpu_device(CpuOptions options) {
  constexpr int kMaxThreads = 1024;
  if (options.n_threads < 1 || options.n_threads > kMaxThreads) {
    return invalid("threads: " + std::to_string(options.n_threads) + " is not in 1.." + std::to_string(kMaxThreads));
  }
  if (!cpu_supports(options.isa)) return unsupported("this CPU lacks the instruction set asked for");
  return std::unique_ptr<ops::Device>(std::make_unique<CpuDevice>(kernels_of(options.isa), options.n_threads));
}

}  // namespace kvasir::backend::cpu
