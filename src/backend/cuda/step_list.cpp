#include "backend/cuda/detail/step_list.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace kvasir::backend::cuda {
namespace {

constexpr std::size_t kParamsAlignment = 16;
constexpr std::size_t kPlainShared = std::size_t{48} << 10;

// FNV-1a over words: equal lists are told by comparing them, this only finds candidates.
std::uint64_t hash_of(const void* data, std::size_t size_bytes, std::uint64_t seed) noexcept {
  const auto* bytes = static_cast<const std::byte*>(data);
  std::uint64_t hash = seed;
  for (std::size_t i = 0; i + 8 <= size_bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    hash = (hash ^ word) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace

StepList::~StepList() {
  for (Graph& graph : graphs_) destroy(graph);
}

void StepList::destroy(Graph& graph) noexcept {
  if (graph.exec) note(cudaGraphExecDestroy(graph.exec));
}

void StepList::record() noexcept {
  entries_.clear();
  params_.clear();
  is_recording_ = true;
}

void StepList::enqueue(const void* kernel,
                       dim3 grid,
                       unsigned n_threads,
                       Start start,
                       std::size_t shared_bytes,
                       const void* params,
                       std::size_t params_bytes) {
  allow_shared(kernel, shared_bytes);
  Entry entry{kernel, grid,        static_cast<std::uint16_t>(n_threads), start, shared_bytes,
              0,      params_bytes};
  if (!is_recording_) return note(launch(entry, const_cast<void*>(params)));
  const std::size_t at = params_.size();
  params_.resize(at + (params_bytes + kParamsAlignment - 1) / kParamsAlignment * kParamsAlignment);
  std::memcpy(params_.data() + at, params, params_bytes);
  entry.params_at = at;
  entries_.push_back(entry);
}

// Kernels that start early do so in captured graphs too: capture keeps the attribute.
void StepList::set_stream(cudaStream_t stream) noexcept {
  stream_ = stream;
  int device = 0, major = 0;
  note(cudaGetDevice(&device));
  note(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  has_early_ = major >= 9;
}

cudaError_t StepList::launch(const Entry& e, void* params) noexcept {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{.gridDim = e.grid,
                                  .blockDim = dim3(e.n_threads),
                                  .dynamicSmemBytes = e.shared_bytes,
                                  .stream = stream_,
                                  .attrs = &early,
                                  .numAttrs = has_early_ && e.start == Start::early ? 1u : 0u};
  void* arguments[] = {params};
  return cudaLaunchKernelExC(&config, e.kernel, arguments);
}

// Asking for a kernel's attributes loads it.
cudaError_t StepList::load_kernels() noexcept {
  for (const Entry& e : entries_) {
    if (!loaded_.insert(e.kernel).second) continue;
    cudaFuncAttributes ignored{};
    if (const cudaError_t error = cudaFuncGetAttributes(&ignored, e.kernel)) return error;
  }
  return cudaSuccess;
}

cudaError_t StepList::prepare() noexcept {
  if (!is_recording_ || entries_.empty()) return cudaSuccess;
  if (const cudaError_t error = load_kernels()) return error;
  if (!use_graphs_) return cudaSuccess;
  Graph& graph = graph_of_list();
  return graph.exec ? cudaSuccess : capture(graph.exec);
}

cudaError_t StepList::run() noexcept {
  is_recording_ = false;
  if (entries_.empty()) return cudaSuccess;
  Graph* const graph = use_graphs_ ? &graph_of_list() : nullptr;
  if (!graph || (graph->n_uses++ == 0 && !graph->exec)) return launch_all();
  if (!graph->exec) {
    if (const cudaError_t error = capture(graph->exec)) return error;
  }
  return cudaGraphLaunch(graph->exec, stream_);
}

// The graph of an equal list, moved to the front, or a new one without an executable yet.
StepList::Graph& StepList::graph_of_list() {
  const std::size_t entries_bytes = entries_.size() * sizeof(Entry);
  const auto is_equal = [&](const Graph& g) {
    return g.entries.size() == entries_.size() && g.params.size() == params_.size() &&
           std::memcmp(g.params.data(), params_.data(), params_.size()) == 0 &&
           std::memcmp(g.entries.data(), entries_.data(), entries_bytes) == 0;
  };
  if (!graphs_.empty() && is_equal(graphs_.front())) return graphs_.front();  // mostly
  const std::uint64_t key = hash_of(params_.data(), params_.size(),
                                    hash_of(entries_.data(), entries_bytes, 0xcbf29ce484222325ull));
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Graph& g) { return g.key == key && is_equal(g); });
  if (found != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, found);
    return graphs_.front();
  }
  if (graphs_.size() >= kMaxGraphs) {
    destroy(graphs_.back());
    graphs_.pop_back();
  }
  return graphs_.emplace_front(Graph{key, entries_, params_, nullptr, 0});
}

cudaError_t StepList::launch_all() noexcept {
  for (const Entry& e : entries_) {
    if (const cudaError_t error = launch(e, params_.data() + e.params_at)) return error;
  }
  return cudaSuccess;
}

cudaError_t StepList::capture(cudaGraphExec_t& out) noexcept {
  cudaGraph_t graph = nullptr;
  if (const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal))
    return error;
  const cudaError_t launched = launch_all();
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  if (launched || ended) return launched ? launched : ended;
  const cudaError_t made = cudaGraphInstantiate(&out, graph, 0);
  const cudaError_t freed = cudaGraphDestroy(graph);
  return made ? made : freed;
}

// A kernel may take more dynamic shared memory than 48 KiB, and clusters of more than 8 blocks,
// only after it was told so. What it was told is the whole process's: of several devices none may
// lower it.
void StepList::allow_shared(const void* kernel, std::size_t shared_bytes) noexcept {
  if (shared_bytes <= kPlainShared) return;
  std::size_t& limit = shared_limits_[kernel];
  if (limit >= shared_bytes) return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  cudaFuncAttributes facts{};
  note(cudaFuncGetAttributes(&facts, kernel));
  limit = std::max(shared_bytes, static_cast<std::size_t>(facts.maxDynamicSharedSizeBytes));
  note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(limit)));
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))
    cudaGetLastError();  // a device without clusters
}

cudaError_t StepList::take_error() noexcept { return std::exchange(error_, cudaSuccess); }

}  // namespace kvasir::backend::cuda
