// The CUDA device and its operations: host code that turns views into kernels' plain structs.
//
// A step (begin_step … end_step) of few tokens is not launched op by op: ops put their launches on
// a list, and the list is run as a captured graph, the same one for every step whose list is the
// same byte for byte. So parameters of kernels hold nothing that changes from step to step: ids,
// positions, rows and block tables are staged (stage, rows_of) into memory whose addresses stay,
// and launch dimensions come from bucketed numbers. Larger steps and ops outside steps go to the
// stream at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/detail/staging.h"
#include "backend/cuda/detail/step_list.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"
#include "base/check.h"
#include "ops/op_table.h"
#include "tensor/kv_view.h"

namespace kvasir::backend::cuda {

class Products;  // detail/products.h

// Remembers the first failure of a step; await_step returns it.
class CudaDevice final : public ops::Device {
 public:
  static Result<std::unique_ptr<CudaDevice>> make(const CudaOptions& options);
  CudaDevice() = default;
  ~CudaDevice() override;

  std::string_view name() const noexcept override { return "cuda"; }
  std::string numerics_id() const override { return "cuda-1"; }
  std::string label() const override { return label_; }
  const ops::OpTable& ops() const noexcept override;
  bool shares_host_memory() const noexcept override { return false; }
  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind kind) override;
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override;
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override;
  void begin_step(std::size_t n_tokens) noexcept override;
  Status end_step() noexcept override;
  Status synchronize() noexcept override;
  void submit_step() noexcept override;
  Status await_step() noexcept override;
  bool runs_behind() const noexcept override { return true; }
  double busy_seconds() const noexcept override { return busy_seconds_; }

  // What the step has come to so far goes to the stream; the step goes on. prepare_work(): what of
  // that, or of submit_step(), may wait for the device.
  void give_work() noexcept;
  void prepare_work() noexcept { note(list_.prepare()); }

  cudaStream_t stream() const noexcept { return stream_; }
  Queue& queue() noexcept { return list_; }
  // Whether launches of this step go to the stream as they come: libraries may be called.
  bool is_eager() const noexcept { return !list_.is_recording(); }
  int n_multiprocessors() const noexcept { return n_multiprocessors_; }
  Products& products() noexcept;  // made when first asked for

  // The device's copy of host values that a kernel reads in this step. Within a step the same span
  // is copied once; its address is the same in the next step if what was staged before it has kept
  // its sizes up to the next power of two.
  template <class T>
  const T* stage(std::span<const T> values) noexcept {
    return reinterpret_cast<const T*>(stage_bytes(std::as_bytes(values)));
  }
  // The rows of a step with their block tables. The numbers are of the host: launch dimensions that
  // follow them go by powers of two.
  struct StagedRows {
    KvRows view;
    std::uint32_t n_rows;
    std::uint32_t longest;   // positions of the longest row after this step
    std::uint32_t most_new;  // tokens of the row that feeds most
    bool any_encoded, all_encoded;
  };
  StagedRows rows_of(std::span<const KvRowView> rows,
                     std::uint32_t block_tokens,
                     std::size_t n_tokens) noexcept;

  // Device memory for what lies between two kernels of one op, valid until the next call with the
  // same slot; slots differ within an op. Never shrinks.
  template <class T>
  T* workspace(int slot, std::size_t n) noexcept {
    return reinterpret_cast<T*>(workspace_bytes(slot, n * sizeof(T)));
  }

  void note(cudaError_t error) noexcept {
    if (error != cudaSuccess && failure_ == cudaSuccess) failure_ = error;
  }

 private:
  static constexpr int kWorkspaces = 11;
  std::byte* workspace_bytes(int slot, std::size_t size_bytes) noexcept;
  const std::byte* stage_bytes(std::span<const std::byte> bytes) noexcept;
  Staging::Place reserve(std::size_t size_bytes, const void* key, std::size_t key_size) noexcept;
  void flush() noexcept;
  void note_begun() noexcept;
  Status status() noexcept;

  struct StepOnItsWay {  // submitted, and not awaited
    cudaEvent_t begun = nullptr, done = nullptr;
  };
  static constexpr int kMaxSteps = 2;
  // The i-th oldest; i = n_steps_ is the step in progress. One more than may be on their way.
  StepOnItsWay& step_at(int i) noexcept { return steps_[(first_step_ + i) % (kMaxSteps + 1)]; }

  cudaStream_t stream_ = nullptr;
  cudaError_t failure_ = cudaSuccess;
  std::string label_;
  int n_multiprocessors_ = 0;
  StepList list_;
  Staging staging_;
  Buffer workspaces_[kWorkspaces];
  StepOnItsWay steps_[kMaxSteps + 1];
  int first_step_ = 0, n_steps_ = 0;
  bool is_begun_ = false;  // of the step in progress
  double busy_seconds_ = 0;
  std::vector<Buffer> retired_;         // grown out of in this step, still named by its launches
  std::shared_ptr<Products> products_;  // shared_ptr: its type is complete in products.cpp alone
};

inline CudaDevice& cuda_of(ops::Device& device) noexcept {
  return static_cast<CudaDevice&>(device);
}

inline ConstMat mat_of(ConstMatView m) noexcept { return {m.data, m.n_rows, m.n_cols, m.stride}; }
inline Mat mat_of(MatView m) noexcept { return {m.data, m.n_rows, m.n_cols, m.stride}; }
inline Type type_of(DType type) noexcept {
  return type == DType::f32 ? Type::f32 : type == DType::f16 ? Type::f16 : Type::bf16;
}

// linear.cpp, embed.cpp, moe.cpp
void embed(ops::Device&, const ops::EmbedArgs&) noexcept;
void linear(ops::Device&, const ops::LinearArgs&) noexcept;
void head_linear(ops::Device&, const ops::HeadLinearArgs&) noexcept;
void moe_experts(ops::Device&, const ops::MoeExpertsArgs&) noexcept;
void linear_group(ops::Device&, const ops::LinearGroupArgs&) noexcept;
// attention.cpp, kv_rows.cpp
void kv_append(ops::Device&, const ops::KvAppendArgs&) noexcept;
void kv_convert(ops::Device&, const ops::KvConvertArgs&) noexcept;
void attention(ops::Device&, const ops::AttentionArgs&) noexcept;
// elementwise.cpp
void rms_norm(ops::Device&, const ops::RmsNormArgs&) noexcept;
void layer_norm(ops::Device&, const ops::LayerNormArgs&) noexcept;
void rope(ops::Device&, const ops::RopeArgs&) noexcept;
void act_mul(ops::Device&, const ops::ActMulArgs&) noexcept;
void gate_rows(ops::Device&, const ops::GateRowsArgs&) noexcept;
void add_scaled(ops::Device&, const ops::AddScaledArgs&) noexcept;
void scale(ops::Device&, const ops::ScaleArgs&) noexcept;
void gather_rows(ops::Device&, const ops::GatherRowsArgs&) noexcept;
void l2_norm(ops::Device&, const ops::L2NormArgs&) noexcept;
// fused.cpp
void add_norm(ops::Device&, const ops::AddNormArgs&) noexcept;
void gated_linear(ops::Device&, const ops::GatedLinearArgs&) noexcept;
void gated_mlp(ops::Device&, const ops::GatedMlpArgs&) noexcept;
void query_key(ops::Device&, const ops::QueryKeyArgs&) noexcept;
void prepared_attention(ops::Device&, const ops::PreparedAttentionArgs&) noexcept;
// recurrent.cpp
void causal_conv(ops::Device&, const ops::CausalConvArgs&) noexcept;
void delta_gates(ops::Device&, const ops::DeltaGatesArgs&) noexcept;
void gated_delta(ops::Device&, const ops::GatedDeltaArgs&) noexcept;
// latent.cpp
void latent_append(ops::Device&, const ops::LatentAppendArgs&) noexcept;
void latent_attention(ops::Device&, const ops::LatentAttentionArgs&) noexcept;
void index_select(ops::Device&, const ops::IndexSelectArgs&) noexcept;
// moe_route.cpp
void moe_route(ops::Device&, const ops::MoeRouteArgs&) noexcept;
// pick.cpp
void pick(ops::Device&, const ops::PickArgs&) noexcept;

}  // namespace kvasir::backend::cuda
