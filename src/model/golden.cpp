#include "model/golden.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "model/detail/contiguous_kv.h"
#include "model/detail/reference_ties.h"
#include "model/families.h"
#include "model/model.h"

namespace kvasir::model {
namespace {

struct Golden {
  std::vector<TokenId> prompt;
  std::vector<float> outputs;  // [prompt, vocab or hidden]
  std::vector<TokenId> greedy;
  std::uint32_t n_f64 = 0;    // rows of outputs that were replaced by those of f64
  double stored_error = 0.0;  // theirs before, ÷ max |output|
};

// A tensor of 4-byte elements; the file may hold it unaligned.
template <class T>
Result<std::vector<T>> read_tensor(const formats::SafetensorsFile& file,
                                   const std::string& name,
                                   std::string_view dtype) {
  const formats::SafeTensor* tensor = file.find(name);
  if (!tensor) return not_found("golden.safetensors: no tensor '" + name + "'");
  if (tensor->dtype != dtype)
    return invalid("golden.safetensors: '" + name + "' is not " + std::string(dtype));
  std::vector<T> out(tensor->bytes.size() / sizeof(T));
  std::memcpy(out.data(), tensor->bytes.data(), out.size() * sizeof(T));
  return out;
}

Result<Golden> read_golden(const formats::SafetensorsFile& file,
                           const std::string& k,
                           const DecoderConfig& config) {
  Golden golden;
  const std::string name = (config.has_head ? "logits_" : "hidden_") + k;
  const std::uint32_t width = config.has_head ? config.vocab : config.hidden;
  KVASIR_TRY(golden.prompt, read_tensor<TokenId>(file, "prompt_" + k, "I32"));
  KVASIR_TRY(golden.outputs, read_tensor<float>(file, name, "F32"));
  if (file.find("greedy_" + k)) {
    KVASIR_TRY(golden.greedy, read_tensor<TokenId>(file, "greedy_" + k, "I32"));
  }
  if (golden.prompt.empty() || golden.outputs.size() != golden.prompt.size() * width) {
    return invalid("golden.safetensors: " + name + " are not [" +
                   std::to_string(golden.prompt.size()) + ", " + std::to_string(width) + "]");
  }
  return golden;
}

// Where the stored logits are further than half the bar from those of the reference in f64, the
// latter count.
Result<Unit> prefer_f64(const formats::SafetensorsFile& file,
                        const std::string& k,
                        std::size_t width,
                        Golden& golden) {
  if (!file.find("positions_" + k)) return Unit{};
  KVASIR_TRY(const auto positions, read_tensor<std::uint32_t>(file, "positions_" + k, "I32"));
  KVASIR_TRY(const auto rows, read_tensor<float>(file, "logits_" + k, "F32"));
  bool is_inside = rows.size() == positions.size() * width;
  for (const std::uint32_t p : positions) is_inside = is_inside && p < golden.prompt.size();
  if (!is_inside) return invalid("golden_f64.safetensors: prompt " + k + ": misshapen");
  float largest = 0.0f;
  for (const float x : golden.outputs) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    float* const stored = golden.outputs.data() + positions[i] * width;
    const float* const exact = rows.data() + i * width;
    double error = 0.0;
    for (std::size_t j = 0; j < width; ++j)
      error = std::max(error, std::abs(double(stored[j]) - double(exact[j])) / double(largest));
    if (!(error > kGoldenBar / 2)) {
      return invalid("golden_f64.safetensors: prompt " + k + ", position " +
                     std::to_string(positions[i]) + ": the stored logits are near enough");
    }
    golden.stored_error = std::max(golden.stored_error, error);
    std::copy_n(exact, width, stored);
    ++golden.n_f64;
  }
  return Unit{};
}

// k of every prompt_k, ascending.
std::map<std::uint32_t, std::string> prompts_of(const formats::SafetensorsFile& file) {
  constexpr std::string_view kPrefix = "prompt_";
  std::map<std::uint32_t, std::string> out;
  for (const formats::SafeTensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with(kPrefix)) continue;
    const std::string k = tensor.name.substr(kPrefix.size());
    std::uint32_t n = 0;
    if (std::from_chars(k.data(), k.data() + k.size(), n).ec == std::errc()) out.emplace(n, k);
  }
  return out;
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// One row that is fed in chunks and keeps its state; an encoder's is fed whole.
class Run {
 public:
  Run(Model& model, ContiguousKv kv) : model_(&model), kv_(std::move(kv)) {}

  // The output row of every token.
  Result<LogitsView> feed(std::span<const TokenId> tokens) {
    const auto n = static_cast<std::uint32_t>(tokens.size());
    std::vector<std::uint32_t> positions(n), wanted(n);
    std::iota(positions.begin(), positions.end(), kv_.length(0));
    std::iota(wanted.begin(), wanted.end(), 0u);
    KvViews kv;
    if (!model_->kv_list().empty()) kv = kv_.begin({&n, 1});
    KVASIR_TRY(
        const LogitsView outputs,
        model_->forward({.tokens = tokens, .positions = positions, .kv = kv, .wanted = wanted}));
    kv_.commit();
    return outputs;
  }

 private:
  Model* model_;
  ContiguousKv kv_;
};

class Difference {
 public:
  void add_position(std::span<const float> got, std::span<const float> reference) {
    double& difference = differences_.emplace_back(0.0);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double d = std::abs(double(got[i]) - double(reference[i]));
      difference =
          std::max(difference, std::isfinite(d) ? d : std::numeric_limits<double>::infinity());
      reference_ = std::max(reference_, std::abs(double(reference[i])));
    }
  }
  // Of each position, ÷ max |reference| over all.
  std::vector<double> relative() const {
    std::vector<double> out = differences_;
    for (double& d : out) d /= std::max(reference_, std::numeric_limits<double>::min());
    return out;
  }

 private:
  std::vector<double> differences_;
  double reference_ = 0.0;
};

std::uint32_t chunk_of(const GoldenOptions& options,
                       const DecoderConfig& config,
                       const Golden& golden) {
  const auto whole = static_cast<std::uint32_t>(golden.prompt.size());
  const bool is_cut = options.chunk_tokens && !config.encoder;
  return is_cut ? std::min(options.chunk_tokens, whole) : whole;
}

// is_anew: every greedy token comes from the whole sequence before it.
Result<GoldenResult> check_prompt(Model& model,
                                  ops::Device& device,
                                  const Golden& golden,
                                  const std::string& k,
                                  const GoldenOptions& options,
                                  bool is_anew) {
  const auto n = static_cast<std::uint32_t>(golden.prompt.size()),
             n_greedy = static_cast<std::uint32_t>(golden.greedy.size());
  const ContiguousKvShape shape{
      .max_tokens = n + n_greedy, .block_tokens = options.block_tokens, .type = options.kv_type};
  KVASIR_TRY(ContiguousKv kv, ContiguousKv::make(device, model.kv_list(), shape));
  Run run(model, std::move(kv));
  GoldenResult out{
      .prompt = k, .n_tokens = n, .n_f64 = golden.n_f64, .stored_error = golden.stored_error};
  Difference difference;
  TokenId next = 0;
  for (std::uint32_t at = 0, chunk = chunk_of(options, model.config(), golden); at < n;
       at += chunk) {
    const std::uint32_t count = std::min(chunk, n - at);
    KVASIR_TRY(const LogitsView outputs, run.feed(std::span(golden.prompt).subspan(at, count)));
    for (std::size_t i = 0; i < count; ++i)
      difference.add_position(
          outputs.row(i),
          std::span(golden.outputs).subspan((at + i) * outputs.vocab, outputs.vocab));
    next = argmax(outputs.row(count - 1));
  }
  out.position_errors = difference.relative();
  out.relative_error = *std::max_element(out.position_errors.begin(), out.position_errors.end());
  if (!options.with_greedy || model.output() == OutputKind::hidden) return out;
  std::vector<TokenId> sequence = golden.prompt;
  out.n_greedy = n_greedy;
  while (out.n_greedy_equal < n_greedy && next == golden.greedy[out.n_greedy_equal]) {
    if (++out.n_greedy_equal == n_greedy) break;
    std::span<const TokenId> tokens(&next, 1);
    if (is_anew) {
      sequence.push_back(next);
      tokens = sequence;
      KVASIR_TRY(kv, ContiguousKv::make(device, model.kv_list(), shape));
      run = Run(model, std::move(kv));
    }
    KVASIR_TRY(const LogitsView logits, run.feed(tokens));
    next = argmax(logits.row(tokens.size() - 1));
  }
  return out;
}

}  // namespace

Result<std::vector<GoldenResult>> check_golden(const std::filesystem::path& folder,
                                               ops::Device& plain_device,
                                               GoldenOptions options) {
  KVASIR_TRY(const formats::ModelFiles files, formats::ModelFiles::open(folder));
  KVASIR_TRY(const formats::SafetensorsFile file,
             formats::SafetensorsFile::open(folder / "golden.safetensors"));
  const auto prompts = prompts_of(file);
  if (prompts.empty()) return not_found((folder / "golden.safetensors").string() + ": no prompt_k");
  std::optional<formats::SafetensorsFile> f64;
  if (const auto path = folder / "golden_f64.safetensors"; std::filesystem::exists(path)) {
    KVASIR_TRY(f64, formats::SafetensorsFile::open(path));
  }
  KVASIR_TRY(const DecoderConfig config, describe_model(files, 0));
  const bool has_index = has_sparse_index(config);
  ReferenceTies with_ties(plain_device);
  ops::Device& device = has_index ? with_ties : plain_device;
  if (has_index) options.chunk_tokens = 0;
  std::vector<std::pair<std::string, Golden>> goldens;
  std::size_t largest = 1;
  for (const auto& [n, k] : prompts) {
    KVASIR_TRY(Golden golden, read_golden(file, k, config));
    if (f64) {
      KVASIR_TRY(const Unit done,
                 prefer_f64(*f64, k, golden.outputs.size() / golden.prompt.size(), golden));
      (void)done;
    }
    largest = std::max(largest,
                       chunk_of(options, config, golden) + (has_index ? golden.greedy.size() : 0));
    goldens.emplace_back(k, std::move(golden));
  }
  KVASIR_TRY(const auto model, Model::load(files, device,
                                           {.max_step_tokens = static_cast<std::uint32_t>(largest),
                                            .exact_f32 = options.exact_f32}));
  std::vector<GoldenResult> out;
  for (const auto& [k, golden] : goldens) {
    KVASIR_TRY(GoldenResult result,
               check_prompt(*model, device, golden, k, options, /*is_anew=*/has_index));
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace kvasir::model
