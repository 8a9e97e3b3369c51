#include "backend/cuda/detail/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <compare>
#include <map>
#include <optional>
#include <string>

#include "backend/cuda/limits.h"
#include "base/log.h"

namespace kvasir::backend::cuda {
namespace {

struct Symbols {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) algo_get;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
};

std::optional<Symbols> load_symbols() {
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return std::nullopt;
  Symbols s{};
  bool is_whole = true;
  const auto load = [&](auto& to, const char* name) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
    is_whole &= to != nullptr;
  };
  load(s.create, "cublasLtCreate");
  load(s.destroy, "cublasLtDestroy");
  load(s.desc_create, "cublasLtMatmulDescCreate");
  load(s.desc_set, "cublasLtMatmulDescSetAttribute");
  load(s.desc_destroy, "cublasLtMatmulDescDestroy");
  load(s.layout_create, "cublasLtMatrixLayoutCreate");
  load(s.layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(s.preference_create, "cublasLtMatmulPreferenceCreate");
  load(s.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(s.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(s.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  load(s.algo_get, "cublasLtMatmulAlgoConfigGetAttribute");
  load(s.matmul, "cublasLtMatmul");
  return is_whole ? std::optional(s) : std::nullopt;  // stays loaded for the process's life
}

// What decides how a product is computed, of the shape and of the algorithm.
struct Shape {
  std::uint32_t n_out, k, n_rows, alignment;
  std::size_t out_stride;
  auto operator<=>(const Shape&) const = default;
};
struct Way {
  std::uint32_t n_out, k;
  std::array<std::uint32_t, 7> config;
  auto operator<=>(const Way&) const = default;
};

std::uint32_t alignment_of(const BlasProduct& p) {
  const auto bits = reinterpret_cast<std::uintptr_t>(p.out) | (p.out_stride * sizeof(float));
  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : 4;
}

std::string name_of(std::uint32_t n_out, std::uint32_t k, std::uint32_t n_rows) {
  return "product of " + std::to_string(n_out) + " x " + std::to_string(k) + " with " +
         std::to_string(n_rows) + " rows";
}

std::atomic<std::uint32_t> n_used{0}, n_refused{0};  // LibraryWays

// Which way was asked, and what came of it.
void report(const Way& way, std::uint32_t n_rows, std::uint32_t n_different) {
  ++(n_different == 0 ? n_used : n_refused);
  std::string line = name_of(way.n_out, way.k, n_rows) + ": cuBLASLt's way";
  for (const std::uint32_t part : way.config) line += ' ' + std::to_string(part);
  if (n_different == 0) return log::debug(line + " has the own kernel's bits");
  log::warning(line +
               (n_different == ~0u ? std::string(" does not run")
                                   : " differs in " + std::to_string(n_different) + " outputs") +
               "; it is not used");
}

}  // namespace

struct Blas::Library {
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
    std::vector<cublasLtMatmulAlgo_t> choices;  // that add along K in one piece, best guess first
    cublasLtMatmulAlgo_t algo{};
    bool is_usable = false;
    std::uint32_t n_runs = 0;
  };
  static constexpr std::size_t kMaxPlans = 1024;
  static constexpr std::uint32_t kWorthTiming = 24;  // runs of a shape

  ~Library() {
    forget_plans();
    if (handle) lt.destroy(handle);
  }
  void forget_plans() {
    for (auto& [shape, plan] : plans) destroy(plan);
    plans.clear();
  }
  void destroy(const Plan& plan) {
    if (plan.desc) lt.desc_destroy(plan.desc);
    for (cublasLtMatrixLayout_t layout : {plan.w, plan.x, plan.out}) {
      if (layout) lt.layout_destroy(layout);
    }
  }

  bool describe(const BlasProduct& p, Plan& plan) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    return !lt.desc_create(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !lt.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) &&
           !lt.layout_create(&plan.w, CUDA_R_16BF, p.k, p.n_out, p.k) &&
           !lt.layout_create(&plan.x, CUDA_R_16BF, p.k, p.n_rows, p.k) &&
           !lt.layout_create(&plan.out, CUDA_R_32F, p.n_out, p.n_rows,
                             static_cast<std::int64_t>(p.out_stride));
  }

  // The library's choices that add along K in one piece.
  bool find_choices(const BlasProduct& p, Plan& plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    if (lt.preference_create(&preference)) return false;
    const std::uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = alignment_of(p);
    const std::size_t workspace = kWorkspaceBytes;
    constexpr int kAsked = 8;
    cublasLtMatmulHeuristicResult_t found[kAsked];
    int n_found = 0;
    bool is_good = !lt.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                      &no_reduction, sizeof(no_reduction)) &&
                   !lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                      &workspace, sizeof(workspace)) &&
                   !lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                      &alignment, sizeof(alignment)) &&
                   !lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                      &alignment, sizeof(alignment)) &&
                   !lt.heuristic(handle, plan.desc, plan.w, plan.x, plan.out, plan.out, preference,
                                 kAsked, found, &n_found);
    lt.preference_destroy(preference);
    for (int i = 0; is_good && i < n_found; ++i) {
      if (found[i].state != CUBLAS_STATUS_SUCCESS || is_split(found[i].algo)) continue;
      plan.choices.push_back(found[i].algo);
    }
    return !plan.choices.empty();
  }

  std::uint32_t attribute(const cublasLtMatmulAlgo_t& algo,
                          cublasLtMatmulAlgoConfigAttributes_t a) {
    std::uint32_t value = 0;
    std::size_t written = 0;
    return lt.algo_get(&algo, a, &value, sizeof(value), &written) ? 0 : value;
  }
  bool is_split(const cublasLtMatmulAlgo_t& algo) {
    return attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1 ||
           attribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) != 0;
  }
  Way way_of(const BlasProduct& p, const cublasLtMatmulAlgo_t& algo) {
    // The last two are 16 bits wide.
    const auto narrow = [&](cublasLtMatmulAlgoConfigAttributes_t a) {
      std::uint16_t value = 0;
      std::size_t written = 0;
      return lt.algo_get(&algo, a, &value, sizeof(value), &written) ? 0u : std::uint32_t{value};
    };
    return {
        p.n_out,
        p.k,
        {attribute(algo, CUBLASLT_ALGO_CONFIG_ID), attribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
         attribute(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
         attribute(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
         attribute(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
         narrow(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
         narrow(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)}};
  }

  struct Place {
    void* workspace;
    cudaStream_t stream;
    const std::function<std::uint32_t(const Run&)>& n_different;
  };
  bool run(const BlasProduct& p,
           const Plan& plan,
           const cublasLtMatmulAlgo_t& algo,
           const Place& at) {
    const float one = 1.0f, zero = 0.0f;
    return !lt.matmul(handle, plan.desc, &one, p.w, plan.w, p.x, plan.x, &zero, p.out, plan.out,
                      p.out, plan.out, &algo, at.workspace, kWorkspaceBytes, at.stream);
  }

  // Asked of each way once.
  bool has_own_bits(const BlasProduct& p,
                    const Plan& plan,
                    const cublasLtMatmulAlgo_t& algo,
                    const Place& at) {
    const auto [way, is_new] = ways.emplace(way_of(p, algo), false);
    if (is_new) {
      const std::uint32_t n =
          at.n_different([&](const BlasProduct& same) { return run(same, plan, algo, at); });
      way->second = n == 0;
      report(way->first, p.n_rows, n);
    }
    return way->second;
  }

  void use_first(const BlasProduct& p, Plan& plan, const Place& at) {
    if (!describe(p, plan) || !find_choices(p, plan)) {
      ++n_refused;
      log::warning(name_of(p.n_out, p.k, p.n_rows) +
                   ": cuBLASLt has no way; the own kernel serves");
      return;
    }
    plan.algo = plan.choices.front();
    plan.is_usable = has_own_bits(p, plan, plan.algo, at);
  }

  // All choices that have the own kernel's bits give p.out what is there already.
  void use_fastest(const BlasProduct& p, Plan& plan, const Place& at) {
    cudaEvent_t begin = nullptr, end = nullptr;
    if (cudaEventCreate(&begin) || cudaEventCreate(&end)) return;
    float least = 0.0f;
    for (const cublasLtMatmulAlgo_t& algo : plan.choices) {
      if (!has_own_bits(p, plan, algo, at) || !run(p, plan, algo, at)) continue;
      constexpr int kTimed = 3;
      float ms = 0.0f;
      cudaEventRecord(begin, at.stream);
      for (int i = 0; i < kTimed; ++i) run(p, plan, algo, at);
      cudaEventRecord(end, at.stream);
      if (cudaEventSynchronize(end) || cudaEventElapsedTime(&ms, begin, end)) continue;
      if (least > 0.0f && ms >= least) continue;
      least = ms;
      plan.algo = algo;
      plan.is_usable = true;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }

  Symbols lt{};
  cublasLtHandle_t handle = nullptr;
  std::map<Shape, Plan> plans;
  std::map<Way, bool> ways;
};

Blas::Blas() = default;
Blas::~Blas() = default;

bool Blas::multiply(const BlasProduct& p,
                    void* workspace,
                    cudaStream_t stream,
                    const std::function<std::uint32_t(const Run&)>& n_different) {
  if (!library_) {
    library_ = std::make_unique<Library>();
    const auto symbols = load_symbols();
    if (symbols) library_->lt = *symbols;
    if (symbols && symbols->create(&library_->handle)) library_->handle = nullptr;
    if (!library_->handle) log::warning("no cuBLASLt: the own kernels multiply many rows");
  }
  Library& l = *library_;
  if (!l.handle) return false;
  const Library::Place at{workspace, stream, n_different};
  const Shape shape{p.n_out, p.k, p.n_rows, alignment_of(p), p.out_stride};
  auto known = l.plans.find(shape);
  if (known == l.plans.end()) {
    if (l.plans.size() >= Library::kMaxPlans) l.forget_plans();
    known = l.plans.emplace(shape, Library::Plan{}).first;
    l.use_first(p, known->second, at);
  }
  Library::Plan& plan = known->second;
  if (++plan.n_runs == Library::kWorthTiming) l.use_fastest(p, plan, at);
  return plan.is_usable && l.run(p, plan, plan.algo, at);
}

LibraryWays library_ways() noexcept { return {n_used, n_refused}; }

std::vector<Blas::Choice> Blas::choices() const {
  std::vector<Choice> out;
  if (!library_) return out;
  for (const auto& [shape, plan] : library_->plans)
    out.push_back({shape.n_out, shape.k, shape.n_rows, plan.is_usable});
  return out;
}

bool Blas::is_there() const noexcept { return library_ && library_->handle; }

}  // namespace kvasir::backend::cuda
