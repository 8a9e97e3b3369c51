#include "backend/cuda/team/team_device.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/detail/cuda_matrix.h"
#include "backend/cuda/team/team_ops.h"

namespace kvasir::backend::cuda {
namespace {

constexpr std::uint32_t kLeastRun = 16;  // outputs that product kernels take together

Error device_error(std::string_view what, cudaError_t error) {
  return {Errc::device, std::string(what) + ": " + cudaGetErrorString(error)};
}

}  // namespace

std::size_t TeamMatrix::size_bytes() const noexcept {
  std::size_t out = 0;
  for (const auto& part : parts) out += part->size_bytes();
  return out;
}

Result<std::unique_ptr<TeamDevice>> TeamDevice::make(std::span<const int> ordinals,
                                                     bool use_graphs) {
  if (ordinals.empty() || ordinals.size() > kMaxMembers)
    return invalid("1 to " + std::to_string(kMaxMembers) + " CUDA devices work together, not " +
                   std::to_string(ordinals.size()));
  std::unique_ptr<TeamDevice> team(new TeamDevice);
  team->ordinals_.assign(ordinals.begin(), ordinals.end());
  for (const int ordinal : ordinals) {
    KVASIR_TRY(auto member, CudaDevice::make({.ordinals = {ordinal}, .use_graphs = use_graphs}));
    team->members_.push_back(std::move(member));
    cudaEvent_t event = nullptr;
    if (const auto error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
      return device_error("cudaEventCreate", error);
    team->events_.push_back(event);
    KVASIR_TRY(Buffer flags, team->members_.back()->allocate(kFlagWords * sizeof(std::uint32_t),
                                                             ops::MemoryKind::device));
    team->flags_.push_back(std::move(flags));
  }
  KVASIR_TRY_DO(team->connect(ordinals));
  KVASIR_TRY_DO(team->synchronize());  // flags are zero before anybody meets
  return team;
}

TeamDevice::~TeamDevice() {
  for (std::size_t m = 0; m < events_.size(); ++m) {
    enter(m);
    cudaEventDestroy(events_[m]);
  }
}

// Every GPU may read and write the others' memory.
Status TeamDevice::connect(std::span<const int> ordinals) {
  for (std::size_t m = 0; m < ordinals.size(); ++m) {
    enter(m);
    for (const int other : ordinals) {
      if (other == ordinals[m]) continue;
      int can = 0;
      cudaDeviceCanAccessPeer(&can, ordinals[m], other);
      if (!can)
        return unsupported("CUDA devices " + std::to_string(ordinals[m]) + " and " +
                           std::to_string(other) + " cannot reach each other's memory");
      const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
      } else if (error) {
        return device_error("cudaDeviceEnablePeerAccess", error);
      }
    }
  }
  return {};
}

std::string TeamDevice::label() const {
  return members_.front()->label() + " x" + std::to_string(size());
}

const ops::OpTable& TeamDevice::ops() const noexcept { return kTeamOps; }

CudaDevice& TeamDevice::enter(std::size_t member) noexcept {
  CudaDevice& device = *members_[member];
  int current = -1;  // a thread's own
  device.note(cudaGetDevice(&current));
  if (current != ordinals_[member]) device.note(cudaSetDevice(ordinals_[member]));
  return device;
}

Result<Buffer> TeamDevice::allocate(std::size_t size_bytes, ops::MemoryKind kind) {
  if (kind == ops::MemoryKind::host) return enter(0).allocate(size_bytes, kind);
  std::vector<Buffer> parts;
  for (std::size_t m = 0; m < size(); ++m) {
    KVASIR_TRY(Buffer part, enter(m).allocate(size_bytes, kind));
    parts.push_back(std::move(part));
  }
  return memory_.add_whole(size_bytes, std::move(parts));
}

Result<Buffer> TeamDevice::allocate_blocks(std::size_t n_blocks,
                                           std::size_t block_bytes,
                                           std::uint32_t n_heads) {
  if (n_heads == 0 || n_heads % size() != 0)
    return allocate(n_blocks * block_bytes, ops::MemoryKind::device);
  std::vector<Buffer> parts;
  for (std::size_t m = 0; m < size(); ++m) {
    KVASIR_TRY(Buffer part,
               enter(m).allocate(n_blocks * (block_bytes / size()), ops::MemoryKind::device));
    parts.push_back(std::move(part));
  }
  Buffer out = memory_.add_split(n_blocks, block_bytes, std::move(parts));
  if (out.data() == nullptr) return Error{Errc::capacity, "no addresses for KV blocks"};
  return out;
}

Result<std::unique_ptr<ops::PackedMatrix>> TeamDevice::pack(const codec::WeightMatrix& weight,
                                                            ops::PackOptions options) {
  auto out = std::make_unique<TeamMatrix>(weight.n_out, weight.n_in);
  const auto n = static_cast<std::uint32_t>(size());
  out->is_split = options.may_split && !options.exact_f32 && weight.n_out % (n * kLeastRun) == 0;
  const std::uint32_t share = weight.n_out / n;
  for (std::uint32_t m = 0; m < n; ++m) {
    KVASIR_TRY(auto part,
               enter(m).pack(out->is_split ? weight.rows(m * share, share) : weight, options));
    out->parts.push_back(std::move(part));
  }
  return std::unique_ptr<ops::PackedMatrix>(std::move(out));
}

void TeamDevice::begin_step(std::size_t n_tokens) noexcept {
  split_.reset();
  for (std::size_t m = 0; m < size(); ++m) enter(m).begin_step(n_tokens);
}

void TeamDevice::give_work() noexcept {
  for (std::size_t m = 0; m < size(); ++m) enter(m).prepare_work();
  for (std::size_t m = 0; m < size(); ++m) enter(m).give_work();
}

// All have their work before any is waited for: they wait for each other.
void TeamDevice::submit_step() noexcept {
  end_crossing();
  for (std::size_t m = 0; m < size(); ++m) enter(m).prepare_work();
  for (std::size_t m = 0; m < size(); ++m) enter(m).submit_step();
}

Status TeamDevice::await_step() noexcept {
  Status out;
  for (std::size_t m = 0; m < size(); ++m) {
    Status done = enter(m).await_step();
    if (!done && out) out = std::move(done);
  }
  return out;
}

Status TeamDevice::end_step() noexcept {
  submit_step();
  return await_step();
}

Status TeamDevice::synchronize() noexcept {
  give_work();
  Status out;
  for (std::size_t m = 0; m < size(); ++m) {
    Status done = enter(m).synchronize();
    if (!done && out) out = std::move(done);
  }
  crosses_ = false;
  return out;
}

// Whatever any member does next comes after all that every member was given before.
void TeamDevice::meet_streams() noexcept {
  give_work();
  for (std::size_t m = 0; m < size(); ++m) {
    CudaDevice& device = enter(m);
    device.note(cudaEventRecord(events_[m], device.stream()));
  }
  for (std::size_t m = 0; m < size(); ++m) {
    CudaDevice& device = enter(m);
    for (std::size_t other = 0; other < size(); ++other)
      if (other != m) device.note(cudaStreamWaitEvent(device.stream(), events_[other], 0));
  }
}

void TeamDevice::copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  const TeamMemory::Region* const target = memory_.find(to);
  const TeamMemory::Region* const source = memory_.find(from);
  if ((target && target->is_split()) || (source && source->is_split()))
    return copy_pieces(to, from, size_bytes);
  end_crossing();
  give_work();
  for (std::size_t m = 0; m < (target ? size() : 1); ++m)
    enter(m).copy(memory_.at(to, m), memory_.at(from, m), size_bytes);
}

void TeamDevice::end_crossing() noexcept {
  if (std::exchange(crosses_, false)) meet_streams();
}

// Copies from a part to other members' memory wait for the streams once, and whatever comes after
// them does.
void TeamDevice::copy_pieces(std::byte* to,
                             const std::byte* from,
                             std::size_t size_bytes) noexcept {
  const TeamMemory::Region* const target = memory_.find(to);
  const TeamMemory::Region* const source = memory_.find(from);
  const bool to_split = target && target->is_split(), from_split = source && source->is_split();
  while (size_bytes > 0) {
    TeamMemory::Piece a{0, nullptr, size_bytes}, b{0, nullptr, size_bytes};
    if (to_split) a = TeamMemory::piece(*target, to, size_bytes);
    if (from_split) b = TeamMemory::piece(*source, from, size_bytes);
    const std::size_t n = std::min(a.size_bytes, b.size_bytes);
    const bool is_everybodys = !to_split && target != nullptr;
    const bool crosses = is_everybodys || (to_split && from_split && a.member != b.member);
    if (!crosses) end_crossing();
    if (crosses && !std::exchange(crosses_, true)) meet_streams();
    if (is_everybodys) {
      for (std::size_t m = 0; m < size(); ++m) enter(m).copy(memory_.at(to, m), b.data, n);
    } else {
      const std::size_t member = to_split ? a.member : b.member;
      enter(member).copy(to_split ? a.data : to, from_split ? b.data : memory_.at(from, member), n);
    }
    to += n;
    from += n;
    size_bytes -= n;
  }
}

void TeamDevice::exchange(std::span<const MatView> own,
                          std::uint32_t from,
                          MatView whole) noexcept {
  const auto n = static_cast<std::uint32_t>(size());
  if (n == 1 && own[0].data == memory_.at(whole.data, 0)) return;
  const std::uint32_t count = whole.n_cols / n;
  ExchangeArgs args{};
  args.stride = whole.stride;
  args.n_members = n;
  args.n_rows = whole.n_rows;
  args.n_runs = 1;
  for (std::uint32_t m = 0; m < n; ++m) {
    args.matrices[m] = memory_.at(whole.data, m);
    args.flags[m] = reinterpret_cast<std::uint32_t*>(flags_[m].data());
  }
  for (std::uint32_t m = 0; m < n; ++m) {
    args.self = m;
    args.own = own[m].data;
    args.own_stride = own[m].stride;
    args.runs[0] = {from, m * count, count};
    launch_exchange(enter(m).queue(), args);
  }
}

void TeamDevice::settle(ConstMatView m) noexcept {
  if (!split_ || m.data == nullptr || m.n_rows == 0 || m.n_cols == 0) return;
  const MatView& whole = split_->whole;
  const auto end_of = [](const auto& view) {
    return view.data + (view.n_rows - 1) * view.stride + view.n_cols;
  };
  if (m.data < end_of(whole) && whole.data < end_of(m)) settle_all();
}

void TeamDevice::settle_all() noexcept {
  if (!split_) return;
  const SplitColumns split = *std::exchange(split_, std::nullopt);
  std::uint32_t from = 0;
  for (const SplitColumns::Part& part : split.parts) {
    exchange(split.of_member, from, split.whole.columns(part.first, part.count));
    from += part.count / static_cast<std::uint32_t>(size());
  }
}

std::optional<MatView> TeamDevice::own_columns(ConstMatView m, std::size_t member) const noexcept {
  if (!split_ || m.n_rows != split_->whole.n_rows || m.stride != split_->whole.stride)
    return std::nullopt;
  std::uint32_t at = 0;
  for (const SplitColumns::Part& part : split_->parts) {
    const std::uint32_t count = part.count / static_cast<std::uint32_t>(size());
    if (m.data == split_->whole.data + part.first && m.n_cols == part.count)
      return split_->of_member[member].columns(at, count);
    at += count;
  }
  return std::nullopt;
}

void TeamDevice::forget_lists_of_freed() noexcept {
  const std::uint64_t n_freed = CudaMatrix::n_freed();
  if (std::exchange(n_freed_, n_freed) != n_freed) lists_.clear();
}

std::span<const ops::ExpertWeights> TeamDevice::bank_of(std::span<const ops::ExpertWeights> bank,
                                                        std::size_t member) {
  forget_lists_of_freed();
  MemberLists& lists = lists_[bank.data()];
  if (lists.banks.empty()) {
    lists.banks.resize(size());
    for (std::size_t m = 0; m < size(); ++m) {
      const auto part = [&](const ops::PackedMatrix* matrix) {
        return matrix ? team_matrix(matrix).parts[m].get() : nullptr;
      };
      for (const ops::ExpertWeights& w : bank)
        lists.banks[m].push_back({.gate = part(w.gate),
                                  .up = part(w.up),
                                  .down = part(w.down),
                                  .gate_bias = memory_.at(w.gate_bias, m),
                                  .up_bias = memory_.at(w.up_bias, m),
                                  .down_bias = memory_.at(w.down_bias, m)});
    }
  }
  return lists.banks[member];
}

std::span<const ops::PackedMatrix* const> TeamDevice::list_of(
    std::span<const ops::PackedMatrix* const> list, std::size_t member) {
  forget_lists_of_freed();
  MemberLists& lists = lists_[list.data()];
  if (lists.matrices.empty()) {
    lists.matrices.resize(size());
    for (std::size_t m = 0; m < size(); ++m)
      for (const ops::PackedMatrix* matrix : list)
        lists.matrices[m].push_back(team_matrix(matrix).parts[m].get());
  }
  return lists.matrices[member];
}

}  // namespace kvasir::backend::cuda
