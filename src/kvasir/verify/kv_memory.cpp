// Bytes of a token under each KV scheme, three ways: as the memory model predicts them, as the
// planes of a state add up, and by how much the process grows while rows fill.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "fit/facts.h"
#include "formats/model_files.h"
#include "kv/kv_store.h"
#include "kvasir/fit/process_memory.h"
#include "kvasir/kv/open_scheme.h"
#include "kvasir/verify.h"
#include "model/model.h"

namespace kvasir::verify {
namespace {

constexpr std::uint32_t kChunk = 512;
constexpr std::uint32_t kWarmUp = 1024;  // past the first span, with all buffers at their size
constexpr std::uint32_t kRow = 2048;     // tokens of a row at most
constexpr double kTolerance = 0.02;

struct Rate {
  double predicted = 0, planes = 0, resident = 0;  // bytes per token
  bool agrees() const {
    return std::abs(planes / predicted - 1) < 1e-9 &&
           std::abs(resident / predicted - 1) <= kTolerance;
  }
};

// What a token adds to a long row: a window that is full grows no more.
double predicted_rate(const std::vector<fit::StateLayer>& state) {
  std::uint64_t bytes = 0;
  for (const fit::StateLayer& layer : state)
    if (layer.window == 0) bytes += layer.encoded_bytes ? layer.encoded_bytes : layer.exact_bytes;
  return static_cast<double>(bytes);
}

class Filling {
 public:
  Filling(model::Model& model, kv::KvStore& store)
      : model_(model), store_(store), row_tokens_(std::min(kRow, model.max_positions())) {}

  // Feeds n tokens: to the last row until it is full, then to new ones.
  Status feed(std::uint32_t n) {
    while (n > 0) {
      if (rows_.empty() || store_.length(rows_.back()) == row_tokens_)
        rows_.push_back(store_.create_row());
      const std::uint32_t length = store_.length(rows_.back());
      std::uint32_t take = std::min({n, kChunk, row_tokens_ - length});
      if (length < store_.transition())
        take =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(take, store_.transition() - length));
      KVASIR_TRY_DO(step(rows_.back(), take));
      n -= take;
    }
    return store_.convert(rows_.back());
  }
  // Of all rows' planes, exported row by row.
  Result<std::uint64_t> plane_bytes() const {
    std::uint64_t total = 0;
    for (const KvRowId row : rows_) {
      const kv::KvState state = store_.capture(row);
      for (std::size_t layer = 0; layer < store_.kv_list().size(); ++layer) {
        KVASIR_TRY(const std::vector<Buffer> planes, store_.planes(state, layer));
        for (const Buffer& plane : planes) total += plane.size_bytes();
      }
    }
    return total;
  }

 private:
  Status step(KvRowId row, std::uint32_t n) {
    KVASIR_TRY_DO(store_.convert(row));
    std::vector<std::uint32_t> positions(n);
    std::vector<TokenId> tokens(n);
    std::iota(positions.begin(), positions.end(), store_.length(row));
    for (TokenId& token : tokens)
      token = static_cast<TokenId>(n_fed_++ * 7919 % model_.vocab_size());
    const kv::RowSpan span{.row = row, .n_tokens = n, .n_drafts = 0};
    KVASIR_TRY(kv::KvStep step, store_.reserve({&span, 1}));
    KVASIR_TRY_DO(model_.forward(
        {.tokens = tokens, .positions = positions, .kv = step.views(), .wanted = {}}));
    std::move(step).commit();
    return {};
  }

  model::Model& model_;
  kv::KvStore& store_;
  const std::uint32_t row_tokens_;
  std::vector<KvRowId> rows_;
  std::uint64_t n_fed_ = 0;
};

Result<Rate> measure(model::Model& model,
                     ops::Device& device,
                     const kv::KvScheme& scheme,
                     std::uint32_t n_tokens) {
  const KvList& list = model.kv_list();
  KVASIR_TRY(const auto state, fit::state_of(list, scheme));
  KVASIR_TRY(auto store,
             kv::KvStore::make(device, list,
                               {.scheme = scheme,
                                .budget_bytes = budget_of_rows(list, scheme, 2, n_tokens + kRow),
                                .split_tokens = kRow,
                                .split_chunk = kChunk}));
  Filling filling(model, *store);
  KVASIR_TRY_DO(filling.feed(kWarmUp));
  KVASIR_TRY(const std::uint64_t planes_before, filling.plane_bytes());
  release_freed_heap();
  const std::uint64_t resident_before = anonymous_bytes();
  KVASIR_TRY_DO(filling.feed(n_tokens));
  release_freed_heap();
  const std::uint64_t resident = anonymous_bytes() - resident_before;
  KVASIR_TRY(const std::uint64_t planes, filling.plane_bytes());
  const auto n = static_cast<double>(n_tokens);
  return Rate{.predicted = predicted_rate(state),
              .planes = static_cast<double>(planes - planes_before) / n,
              .resident = static_cast<double>(resident) / n};
}

std::string table_row(const std::string& name, const Rate& rate) {
  char line[160];
  std::snprintf(line, sizeof(line), "| %s | %.0f | %.0f | %.0f | %.3f |", name.c_str(),
                rate.predicted, rate.planes, rate.resident, rate.resident / rate.predicted);
  return line;
}

}  // namespace

Result<Summary> kv_memory(const KvMemoryOptions& options, const Line& line) {
  const OpenOptions& o = options.open;
  const SmallPages small_pages;  // a slope in pages of 2 MB would say little
  KVASIR_TRY(const auto device, make_device(o));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
  KVASIR_TRY(const auto model, model::Model::load(files, *device,
                                                  {.max_context = 0,
                                                   .max_step_tokens = kChunk,
                                                   .max_wanted = 1,
                                                   .progress = o.progress,
                                                   .exact_f32 = false}));
  if (model->max_positions() < kWarmUp)
    return invalid("the model's context of " + std::to_string(model->max_positions()) +
                   " is too short: at least " + std::to_string(kWarmUp));
  line("| --kv-quant | predicted | sum of planes | growth of the process | ratio |");
  line("|---|---|---|---|---|");
  Summary summary;
  for (const std::string& name : options.schemes) {
    OpenOptions of = o;
    of.kv_quant = name;
    const auto scheme = open_scheme(of, model->exact_f32(), model->kv_list());
    if (!scheme) {
      line("| " + name + " | " + scheme.error().what + " | | | |");
      continue;
    }
    KVASIR_TRY(const Rate rate, measure(*model, *device, *scheme, options.n_tokens));
    line(table_row(name, rate));
    ++summary.n_checked;
    summary.n_failed += rate.agrees() ? 0 : 1;
  }
  summary.text = "bytes per token over " + std::to_string(options.n_tokens) + " tokens; " +
                 std::to_string(summary.n_failed) + " of " + std::to_string(summary.n_checked) +
                 " schemes are off";
  return summary;
}

}  // namespace kvasir::verify
