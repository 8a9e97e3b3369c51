#include "kvasir/verify/prompt_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "kv/kv_store.h"
#include "model/model.h"

namespace kvasir::verify {
namespace {

constexpr std::uint32_t kBlockTokens = 64;
constexpr std::size_t kMaxPromptTokens = 4096;

using Prompt = std::vector<TokenId>;

Result<std::vector<Prompt>> read_prompts(const std::filesystem::path& folder) {
  KVASIR_TRY(const auto file, formats::SafetensorsFile::open(folder / "golden.safetensors"));
  std::map<std::pair<std::size_t, std::string>, Prompt> prompts;  // shortest first
  for (const formats::SafeTensor& entry : file.tensors()) {
    if (!entry.name.starts_with("prompt_")) continue;
    const std::size_t n = entry.bytes.size() / sizeof(std::int32_t);
    if (entry.dtype != "I32" || n == 0 || n > kMaxPromptTokens)
      return invalid(entry.name + ": not a prompt of i32 ids");
    Prompt ids(n);
    std::memcpy(ids.data(), entry.bytes.data(), n * sizeof(TokenId));
    prompts[{n, entry.name}] = std::move(ids);
  }
  std::vector<Prompt> out;
  for (auto& [key, ids] : prompts) out.push_back(std::move(ids));
  return out;
}

Result<PromptLogits> feed(model::Model& model, kv::KvStore& store, const Prompt& prompt) {
  const auto n = static_cast<std::uint32_t>(prompt.size());
  const KvRowId row = store.create_row();
  const kv::RowSpan span{.row = row, .n_tokens = n, .n_drafts = 0};
  KVASIR_TRY(kv::KvStep step, store.reserve({&span, 1}));
  std::vector<std::uint32_t> positions(n);
  std::iota(positions.begin(), positions.end(), 0u);
  KVASIR_TRY(
      const LogitsView logits,
      model.forward(
          {.tokens = prompt, .positions = positions, .kv = step.views(), .wanted = positions}));
  std::move(step).commit();
  PromptLogits out{n, std::vector<float>(logits.data, logits.data + logits.n_rows * logits.vocab)};
  store.free_row(row);
  return out;
}

}  // namespace

Result<std::vector<PromptLogits>> prompt_logits(const std::filesystem::path& folder,
                                                ops::Device& device,
                                                DType kv_type) {
  KVASIR_TRY(const auto prompts, read_prompts(folder));
  if (prompts.empty()) return invalid(folder.string() + ": no prompt in golden.safetensors");
  const auto longest = static_cast<std::uint32_t>(prompts.back().size());
  KVASIR_TRY(const auto files, formats::ModelFiles::open(folder));
  KVASIR_TRY(const auto model, model::Model::load(files, device,
                                                  {.max_context = 0,
                                                   .max_step_tokens = longest,
                                                   .max_wanted = 0,
                                                   .progress = {},
                                                   .exact_f32 = false}));
  std::size_t token_bytes = 0;
  for (const KvLayerSpec& layer : model->kv_list())
    token_bytes += layer.token_elements() * size_of(kv_type);
  const std::size_t budget =
      token_bytes * (longest + 4 * kBlockTokens) * 4;  // with room for groups of unequal width
  KVASIR_TRY(const auto store, kv::KvStore::make(device, model->kv_list(),
                                                 {.scheme = {.type = kv_type},
                                                  .block_tokens = kBlockTokens,
                                                  .budget_bytes = budget,
                                                  .split_tokens = longest,
                                                  .split_chunk = longest}));
  std::vector<PromptLogits> out;
  for (const Prompt& prompt : prompts) {
    KVASIR_TRY(PromptLogits logits, feed(*model, *store, prompt));
    out.push_back(std::move(logits));
  }
  return out;
}

double relative_error(const PromptLogits& a, const PromptLogits& b) {
  double difference = 0, magnitude = 0;
  for (std::size_t i = 0; i < std::min(a.logits.size(), b.logits.size()); ++i) {
    if (!std::isfinite(a.logits[i]) || !std::isfinite(b.logits[i]))
      return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(double{a.logits[i]} - double{b.logits[i]}));
    magnitude = std::max(magnitude, std::abs(double{b.logits[i]}));
  }
  return magnitude > 0 ? difference / magnitude : difference;
}

}  // namespace kvasir::verify
