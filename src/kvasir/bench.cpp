#include "kvasir/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "backend/cpu/limits.h"
#include "backend/cuda/limits.h"
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
  bool has_random_weights = false;
};

Result<Bench> open(const Options& options) {
  Bench bench;
  const OpenOptions& o = options.open;
  KVASIR_TRY(bench.device, make_device(o));
  KVASIR_TRY(const auto files, formats::ModelFiles::open(o.model));
  KVASIR_TRY(const model::DecoderConfig config, model::describe_model(files, 0));
  if (!config.has_head) return unsupported(std::string(kNoText));
  bench.has_random_weights = files.has_random_weights();
  const std::uint32_t context = options.n_prefill + options.n_decode;
  KVASIR_TRY(bench.model, model::Model::load(files, *bench.device,
                                             {.max_context = context,
                                              .max_step_tokens = o.max_step_tokens,
                                              .max_wanted = options.n_rows,
                                              .progress = o.progress,
                                              .exact_f32 = false}));
  KVASIR_TRY(const kv::KvScheme scheme,
             open_scheme(o, /*exact_f32=*/false, bench.model->kv_list()));
  bench.kv_type = scheme.type;
  const std::size_t budget = budget_of_rows(bench.model->kv_list(), scheme, options.n_rows + 1,
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

TokenId greedy(std::span<const float> scores) {
  return static_cast<TokenId>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// One step: the spans' tokens, one after another; the greedy token after each span.
Status feed(Bench& bench,
            std::span<const kv::RowSpan> spans,
            std::span<const TokenId> tokens,
            std::span<TokenId> next) {
  std::vector<std::uint32_t> positions, lasts;
  for (const kv::RowSpan& span : spans) {
    const std::uint64_t length = bench.store->length(span.row);
    for (std::uint32_t i = 0; i < span.n_tokens; ++i)
      positions.push_back(static_cast<std::uint32_t>(length + i));
    lasts.push_back(static_cast<std::uint32_t>(positions.size() - 1));
    KVASIR_TRY_DO(bench.store->convert(span.row));
  }
  KVASIR_TRY(kv::KvStep step, bench.store->reserve(spans));
  KVASIR_TRY(const LogitsView logits,
             bench.model->forward(
                 {.tokens = tokens, .positions = positions, .kv = step.views(), .wanted = lasts}));
  std::move(step).commit();
  for (std::size_t i = 0; i < spans.size(); ++i)
    next[i] = greedy(logits.row(static_cast<std::uint32_t>(i)));
  return {};
}

struct Timing {
  double prefill_s = 0, decode_s = 0;
};

// Each row's prompt in turn, then all rows step by step.
Result<Timing> time_once(Bench& bench,
                         std::uint32_t n_rows,
                         std::uint32_t n_prefill,
                         std::uint32_t n_decode) {
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  std::vector<TokenId> prompt(n_prefill), next(n_rows);
  const TokenId range = std::max<TokenId>(bench.model->vocab_size() - 1, 1);
  for (std::uint32_t i = 0; i < n_prefill; ++i) prompt[i] = (1 + i * 7919u) % range;
  std::vector<kv::RowSpan> spans;
  for (std::uint32_t r = 0; r < n_rows; ++r)
    spans.push_back({.row = bench.store->create_row(), .n_tokens = 1, .n_drafts = 0});
  const auto start = clock();
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    for (std::size_t begin = 0; begin < prompt.size();) {
      kv::RowSpan span = spans[r];
      const std::size_t n = step_size(bench, span.row, prompt.size() - begin);
      span.n_tokens = static_cast<std::uint32_t>(n);
      KVASIR_TRY_DO(feed(bench, {&span, 1}, std::span(prompt).subspan(begin, n), {&next[r], 1}));
      begin += n;
    }
  }
  const auto prefilled = clock();
  for (std::uint32_t i = 0; i < n_decode; ++i) {
    const std::vector<TokenId> tokens = next;
    KVASIR_TRY_DO(feed(bench, spans, tokens, next));
  }
  const auto end = clock();
  for (const kv::RowSpan& span : spans) bench.store->free_row(span.row);
  return Timing{Seconds(prefilled - start).count(), Seconds(end - prefilled).count()};
}

struct MachineLimits {
  double read_gb_s, fma_gflop_s;  // of a GPU: its copies, bytes read and written; no FMA rate
  std::string float_unit;
  double float_gflop_s;
};

Result<MachineLimits> measure_limits(const ops::Device& device, bool has_byte_products) {
  if (device.name() == "cuda") {
    KVASIR_TRY(const auto limits, backend::cuda::measure_limits());
    return MachineLimits{limits.copy_gb_s, 0, "cublas bf16", limits.matmul_gflop_s};
  }
  const auto limits = backend::cpu::measure_limits(device.n_threads());
  const auto fastest =
      has_byte_products ? backend::cpu::byte_limit(limits) : backend::cpu::float_limit(limits);
  return MachineLimits{limits.read_gb_s, limits.fma_gflop_s, fastest.name, fastest.gop_s};
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Phase summarize(std::vector<double> seconds, std::uint32_t n_tokens) {
  std::sort(seconds.begin(), seconds.end());
  const double n = n_tokens;
  Phase out;
  out.tokens_per_second = n / seconds[seconds.size() / 2];
  out.min = n / seconds.back();
  out.max = n / seconds.front();
  return out;
}

void set_shares(const Report& report, Phase& phase) {
  phase.share_of_read = phase.tokens_per_second * phase.bytes_per_token / (report.read_gb_s * 1e9);
  phase.share_of_float =
      phase.tokens_per_second * phase.flops_per_token / (report.float_gflop_s * 1e9);
}

void count_work(const Bench& bench, Report& report) {
  const std::uint32_t chunk = bench.model->max_step_tokens();
  double bytes = 0, flops = 0;
  for (std::uint32_t begin = 0; begin < report.n_prefill; begin += chunk) {
    const auto cost =
        bench.model->cost(std::min(chunk, report.n_prefill - begin), begin, bench.kv_type);
    bytes += static_cast<double>(cost.weight_bytes + cost.kv_bytes);
    flops += static_cast<double>(cost.linear_flops + cost.attention_flops);
  }
  report.prefill.bytes_per_token = bytes / report.n_prefill;
  report.prefill.flops_per_token = flops / report.n_prefill;
  // A decode step reads the weights once for all rows, and each row's own KV.
  const std::uint32_t depth = report.n_prefill + report.n_decode / 2;
  const auto one = bench.model->cost(1, depth, bench.kv_type);
  const auto all = bench.model->cost(report.n_rows, depth, bench.kv_type);
  report.decode.bytes_per_token =
      static_cast<double>(all.weight_bytes) / report.n_rows + static_cast<double>(one.kv_bytes);
  report.decode.flops_per_token = static_cast<double>(one.linear_flops + one.attention_flops);
  set_shares(report, report.prefill);
  set_shares(report, report.decode);
}

json::Object phase_json(const Phase& p) {
  return {{"tokens_per_second", p.tokens_per_second},
          {"min", p.min},
          {"max", p.max},
          {"bytes_per_token", p.bytes_per_token},
          {"flops_per_token", p.flops_per_token},
          {"share_of_read", p.share_of_read},
          {"share_of_float", p.share_of_float},
          {"share_of_limit", p.share_of_limit()}};
}

std::string phase_line(const char* name, std::uint32_t n, const Phase& p, const Report& r) {
  const bool is_read = p.share_of_read > p.share_of_float;
  char line[256];
  std::snprintf(line, sizeof(line),
                "%-8s %5u tokens  %9.1f tok/s (%.1f to %.1f)  %8.2f MB/token  %8.3f GFLOP/token  "
                "%5.1f %% of %s\n",
                name, n, p.tokens_per_second, p.min, p.max, p.bytes_per_token / 1e6,
                p.flops_per_token / 1e9, 100 * p.share_of_limit(),
                is_read ? "the read bandwidth" : r.float_unit.c_str());
  return line;
}

}  // namespace

Result<Report> run(const Options& options) {
  KVASIR_TRY(Bench bench, open(options));
  Report report;
  report.model = options.open.model.filename().string();
  report.backend = bench.device->label();
  report.has_random_weights = bench.has_random_weights;
  report.n_threads = bench.device->n_threads();
  report.n_prefill = options.n_prefill;
  report.n_decode = options.n_decode;
  report.n_rows = options.n_rows;
  constexpr std::uint32_t kWarmUpTokens = 64, kWarmUpSteps = 4;
  KVASIR_TRY_DO(time_once(bench, options.n_rows, std::min(options.n_prefill, kWarmUpTokens),
                          std::min(options.n_decode, kWarmUpSteps)));
  std::vector<double> prefill, decode, read, fma, unit;
  for (std::uint32_t i = 0; i < options.n_runs; ++i) {
    KVASIR_TRY(const MachineLimits limits,
               measure_limits(*bench.device, options.open.activations == "int8"));
    read.push_back(limits.read_gb_s);
    fma.push_back(limits.fma_gflop_s);
    unit.push_back(limits.float_gflop_s);
    report.float_unit = limits.float_unit;
    KVASIR_TRY(const Timing t,
               time_once(bench, options.n_rows, options.n_prefill, options.n_decode));
    prefill.push_back(t.prefill_s);
    decode.push_back(t.decode_s);
  }
  report.read_gb_s = median_of(std::move(read));
  report.fma_gflop_s = median_of(std::move(fma));
  report.float_gflop_s = median_of(std::move(unit));
  report.prefill = summarize(prefill, options.n_prefill * options.n_rows);
  report.decode = summarize(decode, options.n_decode * options.n_rows);
  count_work(bench, report);
  return report;
}

json::Value to_json(const Report& r) {
  return json::Object{{"model", r.model},
                      {"backend", r.backend},
                      {"random_weights", r.has_random_weights},
                      {"threads", r.n_threads},
                      {"n_prefill", r.n_prefill},
                      {"n_decode", r.n_decode},
                      {"rows", r.n_rows},
                      {"prefill_tps", r.prefill.tokens_per_second},
                      {"decode_tps", r.decode.tokens_per_second},
                      {"prefill", phase_json(r.prefill)},
                      {"decode", phase_json(r.decode)},
                      {"read_gb_s", r.read_gb_s},
                      {"fma_gflop_s", r.fma_gflop_s},
                      {"float_unit", r.float_unit},
                      {"float_gflop_s", r.float_gflop_s}};
}

std::string to_table(const Report& r) {
  char head[320];
  std::snprintf(head, sizeof(head),
                "%s%s · %s · %d threads · %u rows · limits here: read %.1f GB/s, %s %.0f GFLOP/s\n",
                r.model.c_str(), r.has_random_weights ? " (random weights)" : "", r.backend.c_str(),
                r.n_threads, r.n_rows, r.read_gb_s, r.float_unit.c_str(), r.float_gflop_s);
  return head + phase_line("prefill", r.n_prefill * r.n_rows, r.prefill, r) +
         phase_line("decode", r.n_decode * r.n_rows, r.decode, r);
}

}  // namespace kvasir::bench
