#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "backend/ref/ref_device.h"
#include "formats/model_files.h"
#include "kvasir/verify.h"
#include "kvasir/verify/planted_fault.h"
#include "kvasir/verify/prompt_logits.h"
#include "kvasir/verify/shadow_device.h"
#include "model/families.h"
#include "model/golden.h"

namespace kvasir::verify {
namespace {

// A tensor core aligns 16 products and drops what is below (docs/numerics.md, backend/cuda).
constexpr double kCudaUnits = 4;
constexpr double kCpuBound = 1e-3;  // cpu against ref:mirror

struct Verdict {
  bool passed = false;
  std::string text;
};

std::string scientific(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.1e", x);
  return buffer;
}

bool matches_reference(const std::vector<model::GoldenResult>& results,
                       double& worst,
                       bool& greedy_equal) {
  worst = 0;
  greedy_equal = true;
  for (const auto& r : results) {
    worst = std::max(worst, r.relative_error);
    greedy_equal = greedy_equal && r.n_greedy_equal == r.n_greedy;
  }
  return worst <= model::kGoldenBar && greedy_equal;
}

// Those that a model can show.
Result<std::vector<Fault>> faults_of(const std::filesystem::path& folder) {
  KVASIR_TRY(const auto files, formats::ModelFiles::open(folder));
  KVASIR_TRY(const auto config, model::describe_model(files, 0));
  std::vector<Fault> out(kGoldenFaults.begin(), kGoldenFaults.end());
  if (model::has_sparse_index(config))
    out.insert(out.end(), kIndexFaults.begin(), kIndexFaults.end());
  return out;
}

using MakeDevice = std::function<Result<std::unique_ptr<ops::Device>>()>;

Result<std::unique_ptr<ops::Device>> make_oracle() {
  return backend::ref::make_ref_device(backend::ref::RefMode::oracle);
}

// A device that computes in f32 throughout, against the reference's own logits and tokens.
Result<Verdict> check_reference(const std::filesystem::path& folder, const MakeDevice& make) {
  model::GoldenOptions options;
  options.exact_f32 = true;
  KVASIR_TRY(const auto device, make());
  KVASIR_TRY(const auto results, model::check_golden(folder, *device, options));
  double worst = 0;
  bool greedy_equal = true;
  Verdict verdict{matches_reference(results, worst, greedy_equal), ""};
  std::uint32_t n_tokens = 0;
  for (const auto& r : results) n_tokens += r.n_greedy_equal;
  verdict.text = "max relative error " + scientific(worst) + ", " + std::to_string(n_tokens) +
                 " greedy tokens equal";
  if (n_tokens == 0 && greedy_equal)
    verdict.text = "max relative error of hidden rows " + scientific(worst);
  if (!greedy_equal) verdict.text += ", then DIFFERENT";
  std::uint32_t n_positions = 0, n_f64 = 0;
  double stored = 0;
  for (const auto& r : results) {
    n_positions += r.n_tokens, n_f64 += r.n_f64;
    stored = std::max(stored, r.stored_error);
  }
  if (n_f64 > 0) {
    verdict.text +=
        ", " + std::to_string(n_f64) + " of " + std::to_string(n_positions) +
        " positions against the reference in f64, from which its stored f32 logits are up to " +
        scientific(stored);
  }
  KVASIR_TRY(const auto faults, faults_of(folder));
  options.with_greedy = false;
  for (const Fault fault : faults) {
    KVASIR_TRY(auto plain, make());
    const auto planted = plant(fault, std::move(plain));
    KVASIR_TRY(const auto faulty, model::check_golden(folder, *planted, options));
    double error = 0;
    bool ignored = true;
    if (!planted->took_place()) verdict.text += ", not applicable: " + std::string(name_of(fault));
    if (!planted->took_place() || !matches_reference(faulty, error, ignored)) continue;
    verdict.passed = false;
    verdict.text += ", NOT NOTICED: " + std::string(name_of(fault));
  }
  return verdict;
}

double worst_error(const std::vector<PromptLogits>& a, const std::vector<PromptLogits>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, relative_error(a[i], b[i]));
  return worst;
}

Result<std::unique_ptr<ops::Device>> make_cpu(const GoldenOptions& options) {
  return make_device(Backend::cpu, options.n_threads, options.isa,
                     {.activations = options.activations});
}

Result<std::unique_ptr<ops::Device>> make_mirror(const GoldenOptions& options) {
  return make_device(Backend::ref_mirror, 1, options.isa, {.activations = options.activations});
}

Result<Verdict> check_cpu(const std::filesystem::path& folder, const GoldenOptions& options) {
  KVASIR_TRY(const auto mirror, make_mirror(options));
  KVASIR_TRY(const auto expected, prompt_logits(folder, *mirror, DType::bf16));
  KVASIR_TRY(auto cpu, make_cpu(options));
  KVASIR_TRY(auto beside, make_mirror(options));
  ShadowDevice shadow(std::move(cpu), std::move(beside));
  KVASIR_TRY(const auto logits, prompt_logits(folder, shadow, DType::bf16));
  const double worst = worst_error(logits, expected);
  Verdict verdict{shadow.n_differ() == 0 && shadow.n_outputs() > 0 && worst <= kCpuBound, ""};
  verdict.text = std::to_string(shadow.n_outputs()) + " linear outputs, " +
                 std::to_string(shadow.n_differ()) + " differ from ref:mirror, outputs within " +
                 scientific(worst);
  KVASIR_TRY(const auto faults, faults_of(folder));
  for (const Fault fault : faults) {
    KVASIR_TRY(auto plain, make_cpu(options));
    const auto device = plant(fault, std::move(plain));
    KVASIR_TRY(const auto faulty, prompt_logits(folder, *device, DType::bf16));
    const double error = worst_error(faulty, expected);
    if (!device->took_place()) verdict.text += ", not applicable: " + std::string(name_of(fault));
    if (!device->took_place() || error > kCpuBound) continue;
    verdict.passed = false;
    verdict.text +=
        ", NOT NOTICED: " + std::string(name_of(fault)) + " (" + scientific(error) + ")";
  }
  return verdict;
}

// In f32 against the reference itself; in bf16 every product against the mirror, within a bound: a
// tensor core adds in an order of its own. Logits of bf16 runs are not compared: a last bit of a
// product moves an activation to the next bf16.
Result<Verdict> check_cuda(const std::filesystem::path& folder, const std::vector<int>& gpus) {
  const auto make_cuda = [&] { return make_device(Backend::cuda, 1, "auto", {.gpus = gpus}); };
  KVASIR_TRY(Verdict verdict, check_reference(folder, make_cuda));
  KVASIR_TRY(auto cuda, make_cuda());
  ShadowDevice shadow(std::move(cuda), backend::ref::make_ref_device(backend::ref::RefMode::mirror),
                      kCudaUnits);
  KVASIR_TRY(const auto logits, prompt_logits(folder, shadow, DType::bf16));
  verdict.passed = verdict.passed && shadow.n_differ() == 0 && shadow.n_outputs() > 0;
  verdict.text += "; bf16: " + std::to_string(shadow.n_outputs()) + " linear outputs, " +
                  std::to_string(shadow.n_differ()) + " beyond the bound to ref:mirror";
  return verdict;
}

Result<Verdict> check(const std::filesystem::path& folder, const GoldenOptions& options) {
  if (options.backend == Backend::ref) return check_reference(folder, make_oracle);
  return options.backend == Backend::cuda ? check_cuda(folder, options.gpus)
                                          : check_cpu(folder, options);
}

bool is_wanted(const GoldenOptions& options, const std::string& name) {
  return options.only.empty() ||
         std::find(options.only.begin(), options.only.end(), name) != options.only.end();
}

Result<std::vector<std::filesystem::path>> find_checkpoints(const GoldenOptions& options) {
  std::vector<std::filesystem::path> found;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder, ec)) {
    std::error_code ignored;
    if (!std::filesystem::exists(entry.path() / "golden.safetensors", ignored))
      continue;  // follows links
    if (is_wanted(options, entry.path().filename().string())) found.push_back(entry.path());
  }
  if (ec) return io_error(options.folder.string() + ": " + ec.message());
  std::sort(found.begin(), found.end());
  for (const std::string& name : options.only) {
    const bool present = std::any_of(found.begin(), found.end(),
                                     [&](const auto& p) { return p.filename() == name; });
    if (!present)
      return not_found(options.folder.string() + ": no checkpoint " + name +
                       " with a golden.safetensors");
  }
  if (found.empty())
    return not_found(options.folder.string() + ": no folder with a golden.safetensors");
  return found;
}

}  // namespace

Result<Summary> goldens(const GoldenOptions& options, const Line& line) {
  KVASIR_TRY(const auto folders, find_checkpoints(options));
  Summary summary;
  std::uint64_t n_unsupported = 0;
  for (const auto& folder : folders) {
    ++summary.n_checked;
    const auto verdict = check(folder, options);
    const std::string name = folder.filename().string();
    if (!verdict) {
      ++summary.n_failed;
      if (verdict.error().code == Errc::unsupported) ++n_unsupported;
      line("FAIL " + name + ": " + verdict.error().what);
      continue;
    }
    if (!verdict->passed) ++summary.n_failed;
    line(std::string(verdict->passed ? "ok   " : "FAIL ") + name + ": " + verdict->text);
  }
  summary.text = std::to_string(summary.n_checked) + " checkpoints, " +
                 std::to_string(summary.n_failed) + " failed (" + std::to_string(n_unsupported) +
                 " unsupported); planted faults: rope position + 1, skipped norm weight, swapped "
                 "KV head; in a "
                 "sparse index: negated key";
  return summary;
}

}  // namespace kvasir::verify
