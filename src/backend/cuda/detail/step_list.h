// StepList: launches of a step as data. While recording they are kept; run() gives them to the
// stream: the first time kernel by kernel, from the second equal list on (byte for byte) as one
// captured graph. Not recording, a launch goes to the stream at once. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/cuda/device/launch.h"

namespace kvasir::backend::cuda {

class StepList final : public Queue {
 public:
  ~StepList() override;
  void set_stream(cudaStream_t stream) noexcept;
  // Without graphs a recorded list is launched kernel by kernel: the same bits (EXE-48).
  void use_graphs(bool use) noexcept { use_graphs_ = use; }

  void record() noexcept;
  bool is_recording() const noexcept { return is_recording_; }
  // What of run() may wait for the device: loading kernels, making the graph. Devices that wait for
  // each other in their lists do this before any of them runs one; a long list launched kernel by
  // kernel could also fill the stream before the other has begun.
  cudaError_t prepare() noexcept;
  cudaError_t run() noexcept;  // ends recording
  // Of launches since the last call.
  cudaError_t take_error() noexcept;

 private:
  struct Entry {  // a kernel and where its parameters are
    const void* kernel;
    dim3 grid;
    std::uint16_t n_threads;
    Start start;
    std::size_t shared_bytes;
    std::size_t params_at, params_bytes;
  };
  static_assert(sizeof(Entry) == 48, "compared as bytes: no padding");
  struct Graph {
    std::uint64_t key;
    std::vector<Entry> entries;
    std::vector<std::byte> params;
    cudaGraphExec_t exec;  // null: seen once, launched kernel by kernel
    std::uint64_t n_uses;
  };
  static constexpr std::size_t kMaxGraphs = 128;  // the least recently used goes first

  void enqueue(const void* kernel,
               dim3 grid,
               unsigned n_threads,
               Start start,
               std::size_t shared_bytes,
               const void* params,
               std::size_t params_bytes) override;
  Graph& graph_of_list();
  cudaError_t load_kernels() noexcept;
  void destroy(Graph& graph) noexcept;
  cudaError_t launch(const Entry& entry, void* params) noexcept;
  cudaError_t launch_all() noexcept;
  cudaError_t capture(cudaGraphExec_t& out) noexcept;
  void allow_shared(const void* kernel, std::size_t shared_bytes) noexcept;
  void note(cudaError_t error) noexcept {
    if (error != cudaSuccess && error_ == cudaSuccess) error_ = error;
  }

  cudaStream_t stream_ = nullptr;
  bool is_recording_ = false, use_graphs_ = true, has_early_ = false;
  cudaError_t error_ = cudaSuccess;
  std::vector<Entry> entries_;
  std::vector<std::byte> params_;
  std::list<Graph> graphs_;  // most recently used first
  std::unordered_map<const void*, std::size_t> shared_limits_;
  std::unordered_set<const void*> loaded_;
};

}  // namespace kvasir::backend::cuda
