#include "kvasir/options.h"

#include "backend/cpu/cpu_device.h"
#include "backend/cuda/cuda_device.h"
#include "backend/ref/ref_device.h"
#include "base/thread_pool.h"

namespace kvasir {

Result<Backend> parse_backend(std::string_view name) {
  if (name == "auto") return Backend::automatic;
  if (name == "cpu") return Backend::cpu;
  if (name == "cuda") return Backend::cuda;
  if (name == "ref") return Backend::ref;
  if (name == "ref:mirror") return Backend::ref_mirror;
  return invalid("unknown backend '" + std::string(name) +
                 "'; one of auto, cpu, cuda, ref, ref:mirror");
}

Backend chosen_backend(Backend backend) {
  if (backend != Backend::automatic) return backend;
  return backend::cuda::cuda_is_available() ? Backend::cuda : Backend::cpu;
}

Result<std::unique_ptr<ops::Device>> make_device(Backend backend,
                                                 int n_threads,
                                                 const std::string& isa,
                                                 const DeviceOptions& options) {
  using backend::cpu::Activations;
  KVASIR_TRY(const Activations taken, backend::cpu::parse_activations(options.activations));
  const bool is_int8 = taken == Activations::int8;
  const Backend chosen_one = chosen_backend(backend);
  if (is_int8 && chosen_one != Backend::cpu && chosen_one != Backend::ref_mirror)
    return unsupported("--activations int8: of the backends cpu and ref:mirror alone");
  if (backend == Backend::ref) return backend::ref::make_ref_device(backend::ref::RefMode::oracle);
  if (chosen_one == Backend::cuda)
    return backend::cuda::make_cuda_device(
        {.ordinals = options.gpus, .use_graphs = options.use_graphs});
  if (backend == Backend::ref_mirror)
    return backend::ref::make_ref_device(backend::ref::RefMode::mirror, is_int8);
  KVASIR_TRY(const backend::cpu::Isa chosen, backend::cpu::parse_isa(isa));
  return backend::cpu::make_cpu_device(
      {.n_threads = n_threads > 0 ? n_threads : default_thread_count(),
       .isa = chosen,
       .activations = taken});
}

std::uint32_t OpenOptions::step_tokens() const {
  if (max_step_tokens > 0) return max_step_tokens;
  return chosen_backend(backend) == Backend::cuda ? 2048 : 512;
}

std::uint32_t OpenOptions::prompt_tokens_beside() const {
  if (prefill_share > 0) return prefill_share;
  return chosen_backend(backend) == Backend::cuda ? 512 : 128;
}

Result<std::unique_ptr<ops::Device>> make_device(const OpenOptions& options) {
  return make_device(options.backend, options.n_threads, options.isa,
                     {.activations = options.activations, .gpus = options.gpus});
}

}  // namespace kvasir
