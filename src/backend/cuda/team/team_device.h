// TeamDevice: several GPUs as one device (tensor parallelism). Every member has all activations and
// norms; matrices marked as divisible are split by outputs and KV blocks by heads, so that a member
// computes some columns of a result and the exchange kernel hands them round. Nothing is ever added
// up across members: each number is computed by one GPU as a lone GPU would, so a team has its
// bits, whatever its size. Members work on their own lists and streams; the host waits for none of
// them before all have their work. One thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/device/exchange.h"
#include "backend/cuda/team/team_memory.h"

namespace kvasir::backend::cuda {

struct TeamMatrix final : ops::PackedMatrix {
  using PackedMatrix::PackedMatrix;
  // Of all members together.
  std::size_t size_bytes() const noexcept override;

  bool is_split = false;  // parts hold equal runs of outputs, else each holds all
  std::vector<std::unique_ptr<ops::PackedMatrix>> parts;
};

inline const TeamMatrix& team_matrix(const ops::PackedMatrix* m) noexcept {
  return static_cast<const TeamMatrix&>(*m);
}

// Columns of a matrix that members have each for themselves: what a linear_group left.
struct SplitColumns {
  struct Part {  // columns [first, first + count), an equal run of them a member
    std::uint32_t first, count;
  };
  MatView whole;                   // where they belong, as the caller sees it
  std::vector<Part> parts;         // side by side, from column 0 on
  std::vector<MatView> of_member;  // its runs of all parts, side by side
};

class TeamDevice final : public ops::Device {
 public:
  // Errors: those of CudaDevice::make; unsupported where two GPUs cannot reach each other's memory.
  static Result<std::unique_ptr<TeamDevice>> make(std::span<const int> ordinals, bool use_graphs);
  ~TeamDevice() override;

  std::string_view name() const noexcept override { return "cuda"; }
  std::string numerics_id() const override { return members_.front()->numerics_id(); }
  std::string label() const override;
  const ops::OpTable& ops() const noexcept override;
  bool shares_host_memory() const noexcept override { return false; }
  Result<Buffer> allocate(std::size_t size_bytes, ops::MemoryKind kind) override;
  Result<Buffer> allocate_blocks(std::size_t n_blocks,
                                 std::size_t block_bytes,
                                 std::uint32_t n_heads) override;
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& weight,
                                                  ops::PackOptions options) override;
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept override;
  void begin_step(std::size_t n_tokens) noexcept override;
  Status end_step() noexcept override;
  Status synchronize() noexcept override;
  void submit_step() noexcept override;
  Status await_step() noexcept override;
  bool runs_behind() const noexcept override { return true; }
  double busy_seconds() const noexcept override { return members_.front()->busy_seconds(); }

  // For ops.
  // Before the first launch of one: copies between members are over.
  void end_crossing() noexcept;
  std::size_t size() const noexcept { return members_.size(); }
  TeamMemory& memory() noexcept { return memory_; }
  // The member, its GPU being the current one.
  CudaDevice& enter(std::size_t member) noexcept;
  // Hands round columns that members have each for themselves: [from, from + count) of `own[m]`
  // become [m · count, …) of `whole`.
  void exchange(std::span<const MatView> own, std::uint32_t from, MatView whole) noexcept;
  // Makes columns whole that a linear_group left split, if they are among `m`.
  void settle(ConstMatView m) noexcept;
  void settle_all() noexcept;
  void leave_split(SplitColumns columns) noexcept { split_ = std::move(columns); }
  // Where a member finds its run of the columns [first, first + count) of m's rows, if they are a
  // part that is split just so.
  std::optional<MatView> own_columns(ConstMatView m, std::size_t member) const noexcept;
  // Lists of pointers that members remember by their address.
  std::span<const ops::ExpertWeights> bank_of(std::span<const ops::ExpertWeights> bank,
                                              std::size_t member);
  std::span<const ops::PackedMatrix* const> list_of(std::span<const ops::PackedMatrix* const> list,
                                                    std::size_t member);

 private:
  TeamDevice() = default;
  Status connect(std::span<const int> ordinals);
  void give_work() noexcept;     // what is recorded goes to the streams, of all members
  void meet_streams() noexcept;  // what comes next waits for what all were given before
  void copy_pieces(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;
  void forget_lists_of_freed() noexcept;

  std::vector<int> ordinals_;
  std::vector<std::unique_ptr<CudaDevice>> members_;
  std::vector<cudaEvent_t> events_;
  std::vector<Buffer> flags_;
  TeamMemory memory_;
  std::optional<SplitColumns> split_;
  bool crosses_ = false;  // copies between members are under way

  struct MemberLists {
    std::vector<std::vector<ops::ExpertWeights>> banks;
    std::vector<std::vector<const ops::PackedMatrix*>> matrices;
  };
  std::unordered_map<const void*, MemberLists> lists_;
  std::uint64_t n_freed_ = 0;
};

inline TeamDevice& team_of(ops::Device& device) noexcept {
  return static_cast<TeamDevice&>(device);
}

}  // namespace kvasir::backend::cuda
