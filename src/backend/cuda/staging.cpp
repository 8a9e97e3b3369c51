#include "backend/cuda/detail/staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvasir::backend::cuda {

Staging::~Staging() {
  for (Pinned& pinned : pinned_) {
    if (pinned.copied) cudaEventDestroy(pinned.copied);
  }
}

void Staging::set_buffers(Buffer first, Buffer second, Buffer device) noexcept {
  pinned_[0].memory = std::move(first);
  pinned_[1].memory = std::move(second);
  for (Pinned& pinned : pinned_)
    note(cudaEventCreateWithFlags(&pinned.copied, cudaEventDisableTiming));
  device_ = std::move(device);
}

void Staging::begin_step(cudaStream_t stream) noexcept {
  if (used_ > 0) take_turns(stream);  // by ops between steps
  restart();
  in_step_ = true;
}

void Staging::end_step(cudaStream_t stream) noexcept {
  take_turns(stream);
  restart();
  in_step_ = false;
}

// The other buffer's copies were put on the stream a step ago: they seldom still wait.
void Staging::take_turns(cudaStream_t stream) noexcept {
  if (used_ > 0) {
    note(cudaEventRecord(pinned().copied, stream));
    pinned().is_busy = true;
  }
  current_ = 1 - current_;
  if (std::exchange(pinned().is_busy, false)) note(cudaEventSynchronize(pinned().copied));
}

void Staging::restart() noexcept {
  used_ = uploaded_ = 0;
  known_.clear();
}

bool Staging::has_room(std::size_t size_bytes) const noexcept {
  return used_ + capacity_of(size_bytes) <= device_.size_bytes();
}

std::size_t Staging::capacity_of(std::size_t size_bytes) noexcept {
  constexpr std::size_t kLeast = 256;
  return std::max(kLeast, std::bit_ceil(size_bytes));
}

const Staging::Known* Staging::find(const void* key, std::size_t key_size) const noexcept {
  if (!in_step_) return nullptr;
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& k) {
    return k.key == key && k.size == key_size;
  });
  return found == known_.end() ? nullptr : &*found;
}

Staging::Place Staging::reserve(std::size_t size_bytes,
                                const void* key,
                                std::size_t key_size) noexcept {
  if (const Known* known = find(key, key_size))
    return {pinned().memory.data() + known->at, device_.data() + known->at, false};
  KVASIR_CHECK(has_room(size_bytes)) << "make_room() comes first";
  const std::size_t at = used_;
  used_ += capacity_of(size_bytes);
  if (in_step_) known_.push_back({key, key_size, at});
  return {pinned().memory.data() + at, device_.data() + at, true};
}

void Staging::forget(const void* key, std::size_t key_size) noexcept {
  std::erase_if(known_, [&](const Known& k) { return k.key == key && k.size == key_size; });
}

void Staging::upload(cudaStream_t stream) noexcept {
  if (uploaded_ == used_) return;
  note(cudaMemcpyAsync(device_.data() + uploaded_, pinned().memory.data() + uploaded_,
                       used_ - uploaded_, cudaMemcpyHostToDevice, stream));
  uploaded_ = used_;
}

cudaError_t Staging::take_error() noexcept { return std::exchange(error_, cudaSuccess); }

}  // namespace kvasir::backend::cuda
