#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/cpu/detail/cpu_ops.h"
#include "base/check.h"
#include "base/pinned.h"

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Of memory that fills from its beginning: a model has dozens of KV planes, and a short row would
// have a huge page of each cleared for it.
constexpr std::size_t kSmallHead = std::size_t{128} << 10;
constexpr std::size_t kMapped = std::size_t{128} << 10;  // buffers of that size and more

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
                            .moe_route = &moe_route,
                            .moe_experts = &ops::moe_experts_composed,
                            .linear_group = &linear_side_by_side,
                            .gated_mlp = &gated_mlp,
                            .add_norm = &add_norm,
                            .query_key = &query_key,
                            .pick = &pick};

// Small pages: a buffer takes what it says, and not a huge page more (FIT-3).
constexpr std::size_t mapped_bytes(std::size_t size_bytes) {
  constexpr std::size_t kPage = 4096;
  return (size_bytes + kPage - 1) / kPage * kPage;
}

void free_memory(void*, std::byte* data, std::size_t) noexcept { std::free(data); }
void unmap_memory(void*, std::byte* data, std::size_t size_bytes) noexcept {
  munmap(data, mapped_bytes(size_bytes));
}

Error no_memory(std::size_t size_bytes) {
  return {Errc::capacity, "no memory for a buffer of " + std::to_string(size_bytes) + " bytes"};
}

// Zeroed by the system when it is first touched: a large pool costs nothing until it fills. Large
// ones have a huge page's border `head` bytes behind their beginning; what is before it is of small
// pages.
Result<Buffer> map_memory(std::size_t size_bytes, std::size_t head) {
  const bool is_large = size_bytes >= kHugePage;
  const std::size_t rounded = mapped_bytes(size_bytes), slack = is_large ? kHugePage : 0,
                    asked = rounded + slack;
  if (rounded < size_bytes || asked < rounded) return no_memory(size_bytes);
  void* const mapped =
      mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return no_memory(size_bytes);
  auto* const begin = static_cast<std::byte*>(mapped);
  if (!is_large) return Buffer(begin, size_bytes, &unmap_memory);
  const std::size_t before =
      (2 * kHugePage - head - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + rounded, slack - before);
  static_cast<void>(madvise(begin + before + head, rounded - head,
                            MADV_HUGEPAGE));  // a hint: failure is harmless
  return Buffer(begin + before, size_bytes, &unmap_memory);
}

const KernelTable& kernels_of(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::automatic) isa = widest_isa();
  if (isa == Isa::amx) return amx_kernels();
  if (isa == Isa::avx512bf16) return avx512bf16_kernels();
  if (isa == Isa::avx512) return kAvx512Kernels;
  if (isa == Isa::avx2) return kAvx2Kernels;
#endif
  static_cast<void>(isa);
  return kPortableKernels;
}

// Every instruction set from avx512 on has what it has.
const Int8Kernels& int8_kernels_of(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::automatic) isa = widest_isa();
  if (isa == Isa::avx2) return has_avx_vnni() ? kAvxVnniInt8Kernels : kAvx2Int8Kernels;
  if (isa == Isa::amx && has_byte_tiles()) return kAmxInt8Kernels;
  if (isa != Isa::portable) return has_vnni() ? kVnniInt8Kernels : kAvx512Int8Kernels;
#endif
  static_cast<void>(isa);
  return kPortableInt8Kernels;
}

const Int8Kernels* grid_kernels_of(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::automatic) isa = widest_isa();
  if (isa == Isa::avx2) return has_avx_vnni() ? &kAvxVnniGridKernels : &kAvx2GridKernels;
  if (isa != Isa::portable) return has_vnni() ? &kVnniGridKernels : &kAvx512GridKernels;
#endif
  static_cast<void>(isa);
  return nullptr;
}

}  // namespace

// Large buffers come from the system as zero pages, which cost nothing until they are touched: a KV
// pool may be most of the memory and hold one short row.
Result<Buffer> allocate_memory(std::size_t size_bytes, MemoryUse use) {
  constexpr std::size_t kAlignment = 64;
  if (size_bytes >= kMapped) {
    Result<Buffer> mapped =
        map_memory(size_bytes, use == MemoryUse::from_the_front ? kSmallHead : 0);
    if (mapped) pin_memory(mapped->data(), size_bytes);
    return mapped;
  }
  const std::size_t rounded = size_bytes / kAlignment * kAlignment + kAlignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (!data) return no_memory(size_bytes);
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

CpuDevice::CpuDevice(const KernelTable& kernels,
                     int n_threads,
                     const Int8Kernels* int8,
                     const Int8Kernels* on_grid)
    : kernels_(kernels),
      int8_(int8),
      on_grid_(on_grid),
      pool_(n_threads),
      per_thread_(static_cast<std::size_t>(n_threads)),
      shares_(static_cast<std::size_t>(n_threads)) {}

const ops::OpTable& CpuDevice::ops() const noexcept { return kOps; }

Result<std::unique_ptr<ops::PackedMatrix>> CpuDevice::pack(const codec::WeightMatrix& weight,
                                                           ops::PackOptions options) {
  KVASIR_TRY(auto matrix, pack_matrix(weight, options, *this));
  return std::unique_ptr<ops::PackedMatrix>(std::move(matrix));
}

void CpuDevice::copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  std::memcpy(to, from, size_bytes);
}

Result<Activations> parse_activations(std::string_view name) {
  if (name == "exact") return Activations::exact;
  if (name == "int8") return Activations::int8;
  return invalid("unknown --activations '" + std::string(name) + "'; one of exact, int8");
}

Result<std::unique_ptr<ops::Device>> make_cpu_device(CpuOptions options) {
  constexpr int kMaxThreads = 1024;
  if (options.n_threads < 1 || options.n_threads > kMaxThreads) {
    return invalid("threads: " + std::to_string(options.n_threads) + " is not in 1.." +
                   std::to_string(kMaxThreads));
  }
  if (!cpu_supports(options.isa))
    return unsupported("--isa " + std::string(name_of(options.isa)) +
                       ": this machine lacks it; the widest it has is " +
                       std::string(name_of(widest_isa())));
  return std::unique_ptr<ops::Device>(std::make_unique<CpuDevice>(
      kernels_of(options.isa), options.n_threads,
      options.activations == Activations::int8 ? &int8_kernels_of(options.isa) : nullptr,
      grid_kernels_of(options.isa)));
}

}  // namespace kvasir::backend::cpu
