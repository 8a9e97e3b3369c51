#include "kvasir/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "backend/cpu/limits.h"
#include "base/thread_pool.h"
#include "contract/generate_options.h"
#include "formats/model_files.h"
#include "kv/kv_store.h"
#include "kvasir/kv/open_scheme.h"
#include "model/families.h"
#include "model/model.h"

namespace kvasir::bench {
namespace {

using Seconds = std::chrono::duration<double>;

// One open model and one row of it, fed directly: no queue, no text.
struct Bench {
  std::unique_ptr<ops::Device> device;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<kv::KvStore> store;
  DType kv_type = DType::bf16;
};

Result<Bench> open(const Options& options) {
  Bench bench;
  const OpenOptions& o = options.open;
  KVASIR_TRY(bench.device, make_device(o.backend, o.n_threads, o.isa));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
  KVASIR_TRY(const model::DecoderConfig config, model::describe_model(files, 0));
  if (!config.has_head) return unsupported(std::string(kNoText));
  const std::uint32_t context = options.n_prefill + options.n_decode;
  KVASIR_TRY(bench.model, model::Model::load(files, *bench.device,
                                             {.max_context = context,
                                              .max_step_tokens = o.max_step_tokens,
                                              .max_wanted = 1,
                                              .progress = o.progress,
                                              .exact_f32 = false}));
  KVASIR_TRY(const kv::KvScheme scheme,
             open_scheme(o, /*exact_f32=*/false, bench.model->kv_list()));
  bench.kv_type = scheme.type;
  const std::size_t budget = budget_of_rows(bench.model->kv_list(), scheme, 2,
                                            context + o.max_step_tokens + 4 * o.block_tokens);
  KVASIR_TRY(bench.store, kv::KvStore::make(*bench.device, bench.model->kv_list(),
                                            {.scheme = scheme,
                                             .block_tokens = o.block_tokens,
                                             .budget_bytes = budget,
                                             .split_tokens = context,
                                             .split_chunk = o.max_step_tokens}));
  return bench;
}

// How many of n tokens the row's next step takes: no step crosses the transition (KV-23).
std::size_t step_size(const Bench& bench, KvRowId row, std::size_t n) {
  const std::uint64_t length = bench.store->length(row), t = bench.store->transition();
  const std::size_t most = std::min<std::size_t>(bench.model->max_step_tokens(), n);
  return length < t ? std::min<std::uint64_t>(most, t - length) : most;
}

// Feeds tokens to the row in one step; the greedy token after the last.
Result<TokenId> feed(Bench& bench, KvRowId row, std::span<const TokenId> tokens) {
  const auto n = static_cast<std::uint32_t>(tokens.size());
  const kv::RowSpan span{.row = row, .n_tokens = n, .n_drafts = 0};
  std::vector<std::uint32_t> positions(n);
  std::iota(positions.begin(), positions.end(), bench.store->length(row));
  const std::uint32_t last = n - 1;
  KVASIR_TRY_DO(bench.store->convert(row));
  KVASIR_TRY(kv::KvStep step, bench.store->reserve({&span, 1}));
  KVASIR_TRY(
      const LogitsView logits,
      bench.model->forward(
          {.tokens = tokens, .positions = positions, .kv = step.views(), .wanted = {&last, 1}}));
  std::move(step).commit();
  const auto scores = logits.row(0);
  return static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

struct Timing {
  double prefill_s = 0, decode_s = 0;
};

Result<Timing> time_once(Bench& bench, const Options& options) {
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  std::vector<TokenId> prompt(options.n_prefill);
  const TokenId range = std::max<TokenId>(bench.model->vocab_size() - 1, 1);
  for (std::uint32_t i = 0; i < options.n_prefill; ++i) prompt[i] = (1 + i * 7919u) % range;
  const KvRowId row = bench.store->create_row();
  const auto start = clock();
  TokenId token = 0;
  for (std::size_t begin = 0; begin < prompt.size();) {
    const std::size_t n = step_size(bench, row, prompt.size() - begin);
    KVASIR_TRY(token, feed(bench, row, std::span(prompt).subspan(begin, n)));
    begin += n;
  }
  const auto prefilled = clock();
  for (std::uint32_t i = 0; i < options.n_decode; ++i) {
    KVASIR_TRY(token, feed(bench, row, {&token, 1}));
  }
  const auto end = clock();
  bench.store->free_row(row);
  return Timing{Seconds(prefilled - start).count(), Seconds(end - prefilled).count()};
}

Phase summarize(std::vector<double> seconds, std::uint32_t n_tokens) {
  std::sort(seconds.begin(), seconds.end());
  const double n = n_tokens;
  return {.tokens_per_second = n / seconds[seconds.size() / 2],
          .min = n / seconds.back(),
          .max = n / seconds.front(),
          .bytes_per_token = 0,
          .flops_per_token = 0,
          .share_of_limit = 0};
}

void count_work(const Bench& bench, const Options& options, Report& report) {
  const std::uint32_t chunk = bench.model->max_step_tokens();
  double bytes = 0, flops = 0;
  for (std::uint32_t begin = 0; begin < options.n_prefill; begin += chunk) {
    const auto cost =
        bench.model->cost(std::min(chunk, options.n_prefill - begin), begin, bench.kv_type);
    bytes += static_cast<double>(cost.weight_bytes + cost.kv_bytes);
    flops += static_cast<double>(cost.linear_flops + cost.attention_flops);
  }
  report.prefill.bytes_per_token = bytes / options.n_prefill;
  report.prefill.flops_per_token = flops / options.n_prefill;
  const auto cost = bench.model->cost(1, options.n_prefill + options.n_decode / 2, bench.kv_type);
  report.decode.bytes_per_token = static_cast<double>(cost.weight_bytes + cost.kv_bytes);
  report.decode.flops_per_token = static_cast<double>(cost.linear_flops + cost.attention_flops);
  report.prefill.share_of_limit = report.prefill.tokens_per_second *
                                  report.prefill.flops_per_token / (report.fma_gflop_s * 1e9);
  report.decode.share_of_limit =
      report.decode.tokens_per_second * report.decode.bytes_per_token / (report.read_gb_s * 1e9);
}

json::Object phase_json(const Phase& p) {
  return {{"tokens_per_second", p.tokens_per_second},
          {"min", p.min},
          {"max", p.max},
          {"bytes_per_token", p.bytes_per_token},
          {"flops_per_token", p.flops_per_token},
          {"share_of_limit", p.share_of_limit}};
}

std::string phase_line(const char* name, std::uint32_t n, const Phase& p, const char* limit) {
  char line[256];
  std::snprintf(line, sizeof(line),
                "%-8s %5u tokens  %9.1f tok/s (%.1f to %.1f)  %8.2f MB/token  %8.3f GFLOP/token  "
                "%5.1f %% of %s\n",
                name, n, p.tokens_per_second, p.min, p.max, p.bytes_per_token / 1e6,
                p.flops_per_token / 1e9, 100 * p.share_of_limit, limit);
  return line;
}

}  // namespace

Result<Report> run(const Options& options) {
  KVASIR_TRY(Bench bench, open(options));
  Report report;
  report.model = options.open.model.filename().string();
  report.backend = bench.device->label();
  report.n_threads = bench.device->n_threads();
  report.n_prefill = options.n_prefill;
  report.n_decode = options.n_decode;
  const auto limits = backend::cpu::measure_limits(report.n_threads);
  report.read_gb_s = limits.read_gb_s;
  report.fma_gflop_s = limits.fma_gflop_s;
  std::vector<double> prefill, decode;
  for (std::uint32_t i = 0; i <= options.n_runs; ++i) {  // the first is the warm-up
    KVASIR_TRY(const Timing t, time_once(bench, options));
    if (i == 0) continue;
    prefill.push_back(t.prefill_s);
    decode.push_back(t.decode_s);
  }
  report.prefill = summarize(prefill, options.n_prefill);
  report.decode = summarize(decode, options.n_decode);
  count_work(bench, options, report);
  return report;
}

json::Value to_json(const Report& r) {
  return json::Object{{"model", r.model},
                      {"backend", r.backend},
                      {"threads", r.n_threads},
                      {"n_prefill", r.n_prefill},
                      {"n_decode", r.n_decode},
                      {"prefill_tps", r.prefill.tokens_per_second},
                      {"decode_tps", r.decode.tokens_per_second},
                      {"prefill", phase_json(r.prefill)},
                      {"decode", phase_json(r.decode)},
                      {"read_gb_s", r.read_gb_s},
                      {"fma_gflop_s", r.fma_gflop_s}};
}

std::string to_table(const Report& r) {
  char head[256];
  std::snprintf(head, sizeof(head),
                "%s · %s · %d threads · limits here: read %.1f GB/s, f32 FMA %.0f GFLOP/s\n",
                r.model.c_str(), r.backend.c_str(), r.n_threads, r.read_gb_s, r.fma_gflop_s);
  return head + phase_line("prefill", r.n_prefill, r.prefill, "the FMA rate") +
         phase_line("decode", r.n_decode, r.decode, "the read bandwidth");
}

}  // namespace kvasir::bench
