// What a KV scheme costs in quality: the same text teacher-forced over f32 KV and over the scheme,
// the two distributions compared position by position.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "formats/model_files.h"
#include "kv/kv_store.h"
#include "kvasir/kv/open_scheme.h"
#include "kvasir/verify.h"
#include "kvasir/verify/divergence.h"
#include "model/model.h"

namespace kvasir::verify {
namespace {

constexpr std::uint32_t kChunk = 64;      // tokens a step: bounds the logits held at once
constexpr std::uint32_t kSegment = 2048;  // tokens of a row

class Comparison {
 public:
  Comparison(model::Model& model, kv::KvStore& base, kv::KvStore& store)
      : model_(model), base_(base), store_(store) {}

  // One row of each store; only positions that read encoded keys count.
  Status run(std::span<const TokenId> tokens) {
    const KvRowId a = base_.create_row(), b = store_.create_row();
    const std::uint64_t t = store_.transition() == kv::kNeverEncoded ? 0 : store_.transition();
    for (std::size_t at = 0; at < tokens.size();) {
      std::size_t n = std::min<std::size_t>(kChunk, tokens.size() - at);
      if (at < t) n = std::min<std::size_t>(n, t - at);
      KVASIR_TRY(const std::vector<float> p, feed(base_, a, tokens.subspan(at, n)));
      KVASIR_TRY(const std::vector<float> q, feed(store_, b, tokens.subspan(at, n)));
      if (at >= t) tally_.add(p, q, n);
      at += n;
    }
    base_.free_row(a);
    store_.free_row(b);
    return {};
  }
  const Tally& tally() const noexcept { return tally_; }

 private:
  Result<std::vector<float>> feed(kv::KvStore& store,
                                  KvRowId row,
                                  std::span<const TokenId> tokens) {
    KVASIR_TRY_DO(store.convert(row));
    const auto n = static_cast<std::uint32_t>(tokens.size());
    const kv::RowSpan span{.row = row, .n_tokens = n, .n_drafts = 0};
    std::vector<std::uint32_t> positions(n), wanted(n);
    std::iota(positions.begin(), positions.end(), store.length(row));
    std::iota(wanted.begin(), wanted.end(), 0u);
    KVASIR_TRY(kv::KvStep step, store.reserve({&span, 1}));
    KVASIR_TRY(
        const LogitsView logits,
        model_.forward(
            {.tokens = tokens, .positions = positions, .kv = step.views(), .wanted = wanted}));
    std::move(step).commit();
    return std::vector<float>(logits.data, logits.data + logits.n_rows * logits.vocab);
  }

  model::Model& model_;
  kv::KvStore& base_;
  kv::KvStore& store_;
  Tally tally_;
};

std::size_t n_elements(const KvList& list) {
  std::size_t n = 0;
  for (const KvLayerSpec& layer : list) n += layer.token_elements();
  return n;
}

Result<std::unique_ptr<kv::KvStore>> make_store(ops::Device& device,
                                                const KvList& list,
                                                const kv::KvScheme& scheme,
                                                std::uint32_t segment) {
  return kv::KvStore::make(device, list,
                           {.scheme = scheme,
                            .budget_bytes = budget_of_rows(list, scheme, 2, segment + 256),
                            .split_tokens = segment,
                            .split_chunk = kChunk});
}

std::string table_row(const std::string& name, double bits, const Tally& tally) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", bits);
  return "| " + name + " | " + text + " | " + tally.columns() + " |";
}

}  // namespace

Result<Summary> kv_quality(const KvQualityOptions& options, const Line& line) {
  const OpenOptions& o = options.open;
  KVASIR_TRY(const std::vector<TokenId> tokens,
             read_tokens(o.model, options.texts, options.n_tokens, 2 * kChunk));
  KVASIR_TRY(const auto device, make_device(o));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
  KVASIR_TRY(const auto model, model::Model::load(files, *device,
                                                  {.max_context = kSegment,
                                                   .max_step_tokens = kChunk,
                                                   .max_wanted = kChunk,
                                                   .progress = o.progress,
                                                   .exact_f32 = false}));
  const std::uint32_t segment = std::min(kSegment, model->max_positions());
  const KvList& list = model->kv_list();
  KVASIR_TRY(const auto base, make_store(*device, list, {.type = DType::f32}, segment));
  line("| scheme | bits per element | mean KL, nats | largest KL | same top token | positions |");
  line("|---|---|---|---|---|---|");
  Summary summary;
  for (const std::string& name : options.schemes) {
    OpenOptions of = o;
    of.kv_quant = name == "bf16" || name == "f16" ? "off" : name;
    of.kv_type = name == "f16" ? DType::f16 : DType::bf16;
    const auto scheme = open_scheme(of, false, list);
    if (!scheme) {
      line("| " + name + " | " + scheme.error().what + " | | | | |");
      continue;
    }
    KVASIR_TRY(const auto store, make_store(*device, list, *scheme, segment));
    Comparison comparison(*model, *base, *store);
    for (std::size_t at = 0; at < tokens.size(); at += segment)
      KVASIR_TRY_DO(comparison.run(
          std::span(tokens).subspan(at, std::min<std::size_t>(segment, tokens.size() - at))));
    const double bits =
        8.0 * static_cast<double>(store->bytes_per_token()) / static_cast<double>(n_elements(list));
    if (comparison.tally().n == 0) continue;
    line(table_row(scheme->cache_key(), bits, comparison.tally()));
    ++summary.n_checked;
  }
  summary.text = std::to_string(tokens.size()) + " tokens in rows of " + std::to_string(segment) +
                 ", teacher-forced; positions that read encoded keys, against f32 KV";
  return summary;
}

}  // namespace kvasir::verify
