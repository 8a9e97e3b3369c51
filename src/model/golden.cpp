#include "model/golden.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "model/detail/contiguous_kv.h"
#include "model/families.h"
#include "model/model.h"

namespace kvasir::model {
namespace {

struct Golden {
  std::vector<TokenId> prompt;
  std::vector<float> outputs;  // [prompt, vocab or hidden]
  std::vector<TokenId> greedy;
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
  Run(Model& model, ContiguousKv kv) : model_(model), kv_(std::move(kv)) {}

  // The output row of every token.
  Result<LogitsView> feed(std::span<const TokenId> tokens) {
    const auto n = static_cast<std::uint32_t>(tokens.size());
    std::vector<std::uint32_t> positions(n), wanted(n);
    std::iota(positions.begin(), positions.end(), kv_.length(0));
    std::iota(wanted.begin(), wanted.end(), 0u);
    std::span<const KvLayerView> kv;
    if (!model_.kv_list().empty()) kv = kv_.begin({&n, 1});
    KVASIR_TRY(
        const LogitsView outputs,
        model_.forward({.tokens = tokens, .positions = positions, .kv = kv, .wanted = wanted}));
    kv_.commit();
    return outputs;
  }

 private:
  Model& model_;
  ContiguousKv kv_;
};

class Difference {
 public:
  void add(std::span<const float> got, std::span<const float> reference) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double d = std::abs(double(got[i]) - double(reference[i]));
      difference_ =
          std::max(difference_, std::isfinite(d) ? d : std::numeric_limits<double>::infinity());
      reference_ = std::max(reference_, std::abs(double(reference[i])));
    }
  }
  double relative() const {
    return difference_ / std::max(reference_, std::numeric_limits<double>::min());
  }

 private:
  double difference_ = 0.0, reference_ = 0.0;
};

std::uint32_t chunk_of(const GoldenOptions& options,
                       const DecoderConfig& config,
                       const Golden& golden) {
  const auto whole = static_cast<std::uint32_t>(golden.prompt.size());
  const bool is_cut = options.chunk_tokens && !config.encoder;
  return is_cut ? std::min(options.chunk_tokens, whole) : whole;
}

Result<GoldenResult> check_prompt(Model& model,
                                  ops::Device& device,
                                  const Golden& golden,
                                  const std::string& k,
                                  const GoldenOptions& options) {
  const auto n = static_cast<std::uint32_t>(golden.prompt.size()),
             n_greedy = static_cast<std::uint32_t>(golden.greedy.size());
  const ContiguousKvShape shape{
      .max_tokens = n + n_greedy, .block_tokens = options.block_tokens, .type = options.kv_type};
  KVASIR_TRY(ContiguousKv kv, ContiguousKv::make(device, model.kv_list(), shape));
  Run run(model, std::move(kv));
  GoldenResult out{.prompt = k, .n_tokens = n};
  Difference difference;
  TokenId next = 0;
  for (std::uint32_t at = 0, chunk = chunk_of(options, model.config(), golden); at < n;
       at += chunk) {
    const std::uint32_t count = std::min(chunk, n - at);
    KVASIR_TRY(const LogitsView outputs, run.feed(std::span(golden.prompt).subspan(at, count)));
    const std::size_t size = std::size_t{count} * outputs.vocab;
    difference.add({outputs.data, size},
                   std::span(golden.outputs).subspan(std::size_t{at} * outputs.vocab, size));
    next = argmax(outputs.row(count - 1));
  }
  out.relative_error = difference.relative();
  if (!options.with_greedy || model.output() == OutputKind::hidden) return out;
  out.n_greedy = n_greedy;
  while (out.n_greedy_equal < n_greedy && next == golden.greedy[out.n_greedy_equal]) {
    if (++out.n_greedy_equal == n_greedy) break;
    KVASIR_TRY(const LogitsView logits, run.feed({&next, 1}));
    next = argmax(logits.row(0));
  }
  return out;
}

}  // namespace

Result<std::vector<GoldenResult>> check_golden(const std::filesystem::path& folder,
                                               ops::Device& device,
                                               GoldenOptions options) {
  KVASIR_TRY(const formats::ModelFiles files, formats::ModelFiles::open(folder));
  KVASIR_TRY(const formats::SafetensorsFile file,
             formats::SafetensorsFile::open(folder / "golden.safetensors"));
  const auto prompts = prompts_of(file);
  if (prompts.empty()) return not_found((folder / "golden.safetensors").string() + ": no prompt_k");
  KVASIR_TRY(const DecoderConfig config, describe_model(files, 0));
  std::vector<std::pair<std::string, Golden>> goldens;
  std::uint32_t largest = 1;
  for (const auto& [n, k] : prompts) {
    KVASIR_TRY(Golden golden, read_golden(file, k, config));
    largest = std::max(largest, chunk_of(options, config, golden));
    goldens.emplace_back(k, std::move(golden));
  }
  KVASIR_TRY(
      const auto model,
      Model::load(files, device, {.max_step_tokens = largest, .exact_f32 = options.exact_f32}));
  std::vector<GoldenResult> out;
  for (const auto& [k, golden] : goldens) {
    KVASIR_TRY(GoldenResult result, check_prompt(*model, device, golden, k, options));
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace kvasir::model
