// What --activations int8 costs in quality: the same text teacher-forced in f32 and in each mode,
// distributions compared position by position; beside them another engine's logits, from a file.
#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>
#include <utility>

#include "formats/model_files.h"
#include "kv/kv_store.h"
#include "kvasir/kv/open_scheme.h"
#include "kvasir/verify.h"
#include "kvasir/verify/divergence.h"
#include "model/model.h"

namespace kvasir::verify {
namespace {

constexpr std::uint32_t kChunk = 64;  // tokens a step: bounds the logits held at once

// One side of the comparison: logits of the next tokens of one row.
class Side {
 public:
  virtual ~Side() = default;
  virtual Result<std::vector<float>> feed(std::span<const TokenId> tokens) = 0;
};

class ModelSide final : public Side {
 public:
  static Result<std::unique_ptr<ModelSide>> open(const OpenOptions& o,
                                                 bool exact_f32,
                                                 std::uint32_t n_tokens) {
    std::unique_ptr<ModelSide> side(new ModelSide);
    KVASIR_TRY(side->device_, make_device(o));
    KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
    KVASIR_TRY(side->model_, model::Model::load(files, *side->device_,
                                                {.max_context = n_tokens,
                                                 .max_step_tokens = kChunk,
                                                 .max_wanted = kChunk,
                                                 .progress = o.progress,
                                                 .exact_f32 = exact_f32}));
    const KvList& list = side->model_->kv_list();
    KVASIR_TRY(const kv::KvScheme scheme, open_scheme(o, exact_f32, list));
    KVASIR_TRY(side->store_,
               kv::KvStore::make(*side->device_, list,
                                 {.scheme = scheme,
                                  .budget_bytes = budget_of_rows(list, scheme, 2, n_tokens + 256),
                                  .split_tokens = n_tokens,
                                  .split_chunk = kChunk}));
    side->row_ = side->store_->create_row();
    return side;
  }

  Result<std::vector<float>> feed(std::span<const TokenId> tokens) override {
    KVASIR_TRY_DO(store_->convert(row_));
    const auto n = static_cast<std::uint32_t>(tokens.size());
    const kv::RowSpan span{.row = row_, .n_tokens = n, .n_drafts = 0};
    std::vector<std::uint32_t> positions(n), wanted(n);
    std::iota(positions.begin(), positions.end(), store_->length(row_));
    std::iota(wanted.begin(), wanted.end(), 0u);
    KVASIR_TRY(kv::KvStep step, store_->reserve({&span, 1}));
    KVASIR_TRY(
        const LogitsView logits,
        model_->forward(
            {.tokens = tokens, .positions = positions, .kv = step.views(), .wanted = wanted}));
    std::move(step).commit();
    return std::vector<float>(logits.data, logits.data + logits.n_rows * logits.vocab);
  }

  std::uint32_t vocab() const { return model_->vocab_size(); }
  std::uint32_t context() const { return model_->max_positions(); }

 private:
  ModelSide() = default;
  std::unique_ptr<ops::Device> device_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kv::KvStore> store_;
  KvRowId row_{};
};

class FileSide final : public Side {
 public:
  FileSide(std::ifstream file, std::uint32_t vocab) : file_(std::move(file)), vocab_(vocab) {}

  Result<std::vector<float>> feed(std::span<const TokenId> tokens) override {
    std::vector<float> logits(tokens.size() * vocab_);
    const auto n_bytes = static_cast<std::streamsize>(logits.size() * sizeof(float));
    if (!file_.read(reinterpret_cast<char*>(logits.data()), n_bytes))
      return io_error("a file of logits is too short");
    return logits;
  }

 private:
  std::ifstream file_;
  std::uint32_t vocab_;
};

struct Candidate {
  std::string name;
  std::unique_ptr<Side> side;
  Tally tally;
};

Result<std::vector<Candidate>> open_candidates(const ActivationQualityOptions& options,
                                               std::uint32_t n_tokens,
                                               std::uint32_t vocab) {
  std::vector<Candidate> out;
  for (const char* mode : {"exact", "int8"}) {
    OpenOptions open = options.open;
    open.activations = mode;
    KVASIR_TRY(auto side, ModelSide::open(open, /*exact_f32=*/false, n_tokens));
    out.push_back({"--activations " + std::string(mode), std::move(side), {}});
  }
  for (const std::string& named : options.logits) {
    const std::size_t at = named.find('=');
    if (at == std::string::npos) return invalid("--logits " + named + ": NAME=FILE");
    std::ifstream file(named.substr(at + 1), std::ios::binary);
    if (!file) return io_error(named.substr(at + 1) + " cannot be read");
    out.push_back({named.substr(0, at), std::make_unique<FileSide>(std::move(file), vocab), {}});
  }
  return out;
}

}  // namespace

Result<Summary> activation_quality(const ActivationQualityOptions& options, const Line& line) {
  KVASIR_TRY(const std::vector<TokenId> tokens,
             read_tokens(options.open.model, options.texts, options.n_tokens, kChunk));
  const auto n_tokens = static_cast<std::uint32_t>(tokens.size());
  OpenOptions exact = options.open;
  exact.activations = "exact";
  exact.kv_type = DType::f32;
  KVASIR_TRY(const auto reference, ModelSide::open(exact, /*exact_f32=*/true, n_tokens));
  if (n_tokens > reference->context()) return invalid("more tokens than the model's context");
  KVASIR_TRY(auto candidates, open_candidates(options, n_tokens, reference->vocab()));
  for (std::size_t at = 0; at < tokens.size(); at += kChunk) {
    const auto chunk =
        std::span(tokens).subspan(at, std::min<std::size_t>(kChunk, tokens.size() - at));
    KVASIR_TRY(const std::vector<float> expected, reference->feed(chunk));
    for (Candidate& c : candidates) {
      KVASIR_TRY(const std::vector<float> got, c.side->feed(chunk));
      c.tally.add(expected, got, chunk.size());
    }
  }
  line("| products | mean KL, nats | largest KL | same top token | positions |");
  line("|---|---|---|---|---|");
  Summary summary;
  for (const Candidate& c : candidates) {
    line("| " + c.name + " | " + c.tally.columns() + " |");
    ++summary.n_checked;
  }
  summary.text = std::to_string(n_tokens) + " tokens of one row, teacher-forced, against f32";
  return summary;
}

}  // namespace kvasir::verify
