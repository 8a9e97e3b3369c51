// The CPU device and its operations: host code that splits work over threads and calls the kernels.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "backend/cpu/detail/memory.h"
#include "backend/cpu/detail/weight_memory.h"
#include "backend/cpu/kernels/int8_kernels.h"
#include "base/thread_pool.h"
#include "ops/fused.h"
#include "ops/op_table.h"

namespace kvasir::backend::cpu {

struct CpuMatrix final : ops::PackedMatrix {
  using PackedMatrix::PackedMatrix;
  std::size_t size_bytes() const noexcept override { return data.size_bytes(); }
  std::uint32_t n_panels() const noexcept { return (n_out() + kPanel - 1) / kPanel; }
  std::uint32_t padded_in() const noexcept { return layout.group * layout.n_groups; }

  PackedLayout layout;
  bool round_x = true;      // activations to bf16
  bool takes_int8 = false;  // or to 8 bits; byte codes then lie four of K together (int8_kernels.h)
  bool has_quads() const noexcept { return takes_int8 && layout.code == CodeKind::byte; }
  bool on_grid() const noexcept { return layout.grid != 0; }
  Buffer data;
};

class CpuDevice final : public ops::Device {
 public:
  // int8: products of quantized weights take activations of 8 bits; null: as docs/numerics.md says.
  // on_grid: what multiplies few rows on their grid, with the same bits; null: `kernels` does.
  CpuDevice(const KernelTable& kernels,
            int n_threads,
            const Int8Kernels* int8 = nullptr,
            const Int8Kernels* on_grid = nullptr);

  std::string_view name() const noexcept override { return "cpu"; }
  std::string numerics_id() const override { return int8_ ? "cpu-int8-1" : "cpu-2"; }
  std::string label() const override {
    return "cpu-" + std::string(int8_ ? int8_->name : kernels_.name) + (int8_ ? " int8" : "");
  }
  const ops::OpTable& ops() const noexcept override;
  int n_threads() const noexcept override { return pool_.n_threads(); }
  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind) override {
    return allocate_memory(size_bytes, MemoryUse::from_the_front);
  }
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override;
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override;

  const KernelTable& kernels() const noexcept { return kernels_; }
  const Int8Kernels* int8_kernels() const noexcept { return int8_; }
  const Int8Kernels* grid_kernels() const noexcept { return on_grid_; }
  float* thread_scratch(int part, std::size_t n_floats) {
    return per_thread_[static_cast<std::size_t>(part)].floats(n_floats);
  }
  WeightMemory& weight_memory() noexcept { return weight_memory_; }
  Scratch& inputs() noexcept { return inputs_; }
  Scratch& sums() noexcept { return sums_; }
  Scratch& partials() noexcept { return partials_; }
  Scratch& hidden() noexcept { return hidden_; }
  Scratch& hidden_sums() noexcept { return hidden_sums_; }
  std::vector<AttentionItem>& items() noexcept { return items_; }
  std::vector<LinearJob>& linear_jobs() noexcept { return linear_jobs_; }

  // f(begin, end, part) over [0, n), piece by piece: each thread has an even share, and takes from
  // the others' when its own is done. On the caller alone where `work` (about one a multiply-add)
  // is not worth a fork.
  template <class F>
  void split(std::size_t n, std::size_t work, F&& f) {
    if (work < kWorkWorthFork || n < 2 || n_threads() == 1) {
      const FloatModeScope mode;
      return f(std::size_t{0}, n, 0);
    }
    const std::size_t n_parts = shares_.size(),
                      piece = std::max<std::size_t>(1, n / (n_parts * kPiecesOfShare));
    for (std::size_t p = 0; p < n_parts; ++p) {
      shares_[p].next.store(n * p / n_parts, std::memory_order_relaxed);
      shares_[p].end = n * (p + 1) / n_parts;
    }
    pool_.run([&](int part) {
      for (std::size_t i = 0; i < n_parts; ++i) {
        Share& share = shares_[(static_cast<std::size_t>(part) + i) % n_parts];
        while (share.next.load(std::memory_order_relaxed) < share.end) {
          const std::size_t begin = share.next.fetch_add(piece, std::memory_order_relaxed);
          if (begin < share.end) f(begin, std::min(begin + piece, share.end), part);
        }
      }
    });
  }
  // f(item, part) for items 0 … n - 1, each to whichever thread is free: items must not depend on
  // each other.
  template <class F>
  void deal(std::size_t n, F&& f) {
    std::atomic<std::size_t> next{0};
    pool_.run([&](int part) {
      for (std::size_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) f(i, part);
    });
  }

 private:
  static constexpr std::size_t kWorkWorthFork =
      32'768;  // about 2 µs on one thread, some times a fork's cost
  static constexpr std::size_t kPiecesOfShare = 8;

  struct alignas(64) Share {  // of [0, n) in split
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  const KernelTable& kernels_;
  const Int8Kernels *const int8_, *const on_grid_;
  ThreadPool pool_;
  WeightMemory weight_memory_;
  std::vector<Scratch> per_thread_;
  Scratch inputs_, sums_, partials_, hidden_, hidden_sums_;
  std::vector<AttentionItem> items_;
  std::vector<LinearJob> linear_jobs_;
  std::vector<Share> shares_;
};

inline CpuDevice& cpu_of(ops::Device& device) noexcept { return static_cast<CpuDevice&>(device); }
inline const CpuMatrix& matrix_of(const ops::PackedMatrix* m) noexcept {
  return static_cast<const CpuMatrix&>(*m);
}

// What attention's kernel needs for n_pairs (query, head) pairs: a tile of keys and of values, of
// encoded ones also the bytes and, in groups of 32 at least, scales and offsets; and what each pair
// carries along.
constexpr std::size_t attention_scratch_floats(std::uint32_t head_dim, std::size_t n_pairs) {
  const std::size_t dim = (head_dim + 31) / 32 * 32;
  return (2 * dim + kTilesTogether * dim / 2 + 7 * dim / 32) * kTileKeys + 41 * dim +
         n_pairs * (2 * dim + kTileKeys + 2 + dim / 32);
}

bool can_emulate_amx() noexcept;  // AVX-512 with VBMI and BF16: emulated_amx_kernels run
bool has_vnni() noexcept;         // of AVX-512
bool has_avx_vnni() noexcept;     // beside AVX2
bool has_byte_tiles() noexcept;   // AMX's, with VNNI

Result<std::unique_ptr<CpuMatrix>> pack_matrix(const codec::WeightMatrix& weight,
                                               ops::PackOptions options,
                                               CpuDevice& device);

// Token i of a row; rounded: room for head_dim values.
void append_token(const CpuDevice&,
                  const ops::KvAppendArgs&,
                  const KvRowView& row,
                  std::uint32_t i,
                  float* rounded) noexcept;

// Whether so many rows are multiplied as integers: of 8 bits, or on their grid.
bool takes_integers(const CpuDevice&, const CpuMatrix&, std::uint32_t n_rows) noexcept;
// Of such a weight; of a group with such a part, else false.
void linear_in_integers(CpuDevice&, const ops::LinearArgs&) noexcept;
bool linear_group_in_integers(CpuDevice&, const ops::LinearGroupArgs&) noexcept;
// Of one that has_quads.
void embed_quads(const CpuMatrix&, std::uint32_t row, float factor, float* out) noexcept;

void embed(ops::Device&, const ops::EmbedArgs&) noexcept;
void linear(ops::Device&, const ops::LinearArgs&) noexcept;
void linear_side_by_side(ops::Device&, const ops::LinearGroupArgs&) noexcept;
void add_norm(ops::Device&, const ops::AddNormArgs&) noexcept;
void query_key(ops::Device&, const ops::QueryKeyArgs&) noexcept;
void gated_mlp(ops::Device&, const ops::GatedMlpArgs&) noexcept;
void rms_norm(ops::Device&, const ops::RmsNormArgs&) noexcept;
void layer_norm(ops::Device&, const ops::LayerNormArgs&) noexcept;
void rope(ops::Device&, const ops::RopeArgs&) noexcept;
void kv_append(ops::Device&, const ops::KvAppendArgs&) noexcept;
void kv_convert(ops::Device&, const ops::KvConvertArgs&) noexcept;
void attention(ops::Device&, const ops::AttentionArgs&) noexcept;
void act_mul(ops::Device&, const ops::ActMulArgs&) noexcept;
void gate_rows(ops::Device&, const ops::GateRowsArgs&) noexcept;
void add_scaled(ops::Device&, const ops::AddScaledArgs&) noexcept;
void scale(ops::Device&, const ops::ScaleArgs&) noexcept;
void gather_rows(ops::Device&, const ops::GatherRowsArgs&) noexcept;
void l2_norm(ops::Device&, const ops::L2NormArgs&) noexcept;
void causal_conv(ops::Device&, const ops::CausalConvArgs&) noexcept;
void delta_gates(ops::Device&, const ops::DeltaGatesArgs&) noexcept;
void gated_delta(ops::Device&, const ops::GatedDeltaArgs&) noexcept;
void latent_append(ops::Device&, const ops::LatentAppendArgs&) noexcept;
void latent_attention(ops::Device&, const ops::LatentAttentionArgs&) noexcept;
void index_select(ops::Device&, const ops::IndexSelectArgs&) noexcept;
void moe_route(ops::Device&, const ops::MoeRouteArgs&) noexcept;
void pick(ops::Device&, const ops::PickArgs&) noexcept;

}  // namespace kvasir::backend::cpu
