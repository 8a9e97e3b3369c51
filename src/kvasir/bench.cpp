#include "kvasir/bench.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "backend/cpu/limits.h"
#include "backend/cuda/limits.h"
#include "kvasir/bench/engine_runs.h"

namespace kvasir::bench {
namespace {

struct MachineLimits {
  double read_gb_s, fma_gflop_s;  // of a GPU: its copies, bytes read and written; no FMA rate
  std::string float_unit;
  double float_gflop_s;
  double shared_time = -1;
};

Result<MachineLimits> measure_limits(const ops::Device& device, bool has_byte_products) {
  if (device.name() == "cuda") {
    KVASIR_TRY(const auto limits, backend::cuda::measure_limits());
    return MachineLimits{limits.copy_gb_s, 0, "cublas bf16", limits.matmul_gflop_s, -1};
  }
  const auto limits = backend::cpu::measure_limits(device.n_threads());
  const auto fastest =
      has_byte_products ? backend::cpu::byte_limit(limits) : backend::cpu::float_limit(limits);
  return MachineLimits{limits.read_gb_s, limits.fma_gflop_s, fastest.name, fastest.gop_s,
                       limits.shared_time};
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

// Keys, values and states that a step reads and writes; states are never encoded.
double kv_bytes(const EngineRig& rig, const model::StepCost& cost, std::uint32_t depth) {
  const auto all = static_cast<double>(cost.kv_bytes);
  if (depth < rig.kv_transition) return all;
  const double states =
      std::min(all, static_cast<double>(rig.model->cost(1, 0, rig.kv_type).kv_bytes));
  return states + (all - states) * rig.kv_encoded_share;
}

void count_work(const EngineRig& rig, Report& report) {
  const std::uint32_t chunk = rig.model->max_step_tokens();
  double bytes = 0, flops = 0;
  for (std::uint32_t begin = 0; begin < report.n_prefill; begin += chunk) {
    const auto cost =
        rig.model->cost(std::min(chunk, report.n_prefill - begin), begin, rig.kv_type);
    bytes += static_cast<double>(cost.weight_bytes) + kv_bytes(rig, cost, begin);
    flops += static_cast<double>(cost.linear_flops + cost.attention_flops);
  }
  report.prefill.bytes_per_token = bytes / report.n_prefill;
  report.prefill.flops_per_token = flops / report.n_prefill;
  // A decode step reads the weights once for all rows, and each row's own KV.
  const std::uint32_t depth = report.n_prefill + report.n_decode / 2;
  const auto one = rig.model->cost(1, depth, rig.kv_type);
  const auto all = rig.model->cost(report.n_rows, depth, rig.kv_type);
  report.decode.bytes_per_token =
      static_cast<double>(all.weight_bytes) / report.n_rows + kv_bytes(rig, one, depth);
  report.decode.flops_per_token = static_cast<double>(one.linear_flops + one.attention_flops);
  set_shares(report, report.prefill);
  set_shares(report, report.decode);
}

std::vector<OpShare> shares_of(const std::vector<OpTime>& times,
                               const std::vector<double>& phase_seconds,
                               const Report& r) {
  const auto n_runs = static_cast<double>(phase_seconds.size());
  const double whole = std::accumulate(phase_seconds.begin(), phase_seconds.end(), 0.0);
  std::vector<OpShare> out;
  for (const OpTime& t : times)
    out.push_back({.name = std::string(t.name),
                   .n_calls = static_cast<double>(t.n_calls) / n_runs,
                   .milliseconds = 1e3 * t.seconds / n_runs,
                   .share_of_time = t.seconds / whole,
                   .share_of_read = t.bytes / t.seconds / (r.read_gb_s * 1e9),
                   .share_of_float = t.flops / t.seconds / (r.float_gflop_s * 1e9)});
  return out;
}

json::Array ops_json(const Phase& p) {
  json::Array out;
  for (const OpShare& op : p.ops)
    out.push_back(json::Object{{"name", op.name},
                               {"calls", op.n_calls},
                               {"ms", op.milliseconds},
                               {"share_of_time", op.share_of_time},
                               {"share_of_read", op.share_of_read},
                               {"share_of_float", op.share_of_float}});
  return out;
}

std::string ops_table(const char* phase, const Phase& p) {
  if (p.ops.empty()) return {};
  std::string out = std::string(phase) +
                    " by operation: calls, ms, % of the time, of the reads, of " +
                    "the float unit\n";
  for (const OpShare& op : p.ops) {
    char line[160];
    std::snprintf(line, sizeof(line), "  %-16s %6.0f %10.3f %6.1f %%", op.name.c_str(), op.n_calls,
                  op.milliseconds, 100 * op.share_of_time);
    out += line;
    if (op.share_of_float > 0) {
      std::snprintf(line, sizeof(line), " %6.1f %% %6.1f %%", 100 * op.share_of_read,
                    100 * op.share_of_float);
      out += line;
    }
    out += '\n';
  }
  return out;
}

json::Object phase_json(const Phase& p) {
  return {{"tokens_per_second", p.tokens_per_second},
          {"min", p.min},
          {"max", p.max},
          {"bytes_per_token", p.bytes_per_token},
          {"flops_per_token", p.flops_per_token},
          {"share_of_read", p.share_of_read},
          {"share_of_float", p.share_of_float},
          {"share_of_limit", p.share_of_limit()},
          {"ops", ops_json(p)}};
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

// Some tokens and steps; on a GPU also a whole step of a prompt, since the first one of its size
// chooses among the library's ways.
Status warm_up(EngineRig& rig, const Options& options) {
  constexpr std::uint32_t kTokens = 64, kSteps = 4;
  const std::uint32_t n_steps = std::min(options.n_decode, kSteps);
  KVASIR_TRY_DO(time_rows(rig, options.n_rows, std::min(options.n_prefill, kTokens), n_steps));
  if (rig.device->name() == "cuda")
    KVASIR_TRY_DO(
        time_rows(rig, 1, std::min(options.n_prefill, rig.model->max_step_tokens()), n_steps));
  return {};
}

}  // namespace

Result<Report> run(const Options& options) {
  KVASIR_TRY(const auto rig, open_rig(options));
  Report report;
  report.model = options.open.model.filename().string();
  report.backend = rig->device->label();
  report.kv = rig->kv_key;
  report.has_random_weights = rig->has_random_weights;
  report.n_threads = rig->device->n_threads();
  report.n_prefill = options.n_prefill;
  report.n_decode = options.n_decode;
  report.n_rows = options.n_rows;
  KVASIR_TRY_DO(warm_up(*rig, options));
  if (rig->timed) {
    rig->timed->take(TimedDevice::kPrefill);
    rig->timed->take(TimedDevice::kDecode);
  }
  std::vector<double> prefill, decode, busy, read, fma, unit, shared;
  for (std::uint32_t i = 0; i < options.n_runs; ++i) {
    KVASIR_TRY(const MachineLimits limits,
               measure_limits(*rig->device, options.open.activations == "int8"));
    read.push_back(limits.read_gb_s);
    fma.push_back(limits.fma_gflop_s);
    unit.push_back(limits.float_gflop_s);
    shared.push_back(limits.shared_time);
    report.float_unit = limits.float_unit;
    KVASIR_TRY(const Timing t,
               time_rows(*rig, options.n_rows, options.n_prefill, options.n_decode));
    prefill.push_back(t.prefill_s);
    decode.push_back(t.decode_s);
    busy.push_back(t.decode_busy_s / t.decode_s);
  }
  report.read_gb_s = median_of(std::move(read));
  report.fma_gflop_s = median_of(std::move(fma));
  report.float_gflop_s = median_of(std::move(unit));
  report.shared_time = median_of(std::move(shared));
  report.decode_busy = median_of(std::move(busy));
  report.prefill = summarize(prefill, options.n_prefill * options.n_rows);
  report.decode = summarize(decode, options.n_decode * options.n_rows);
  count_work(*rig, report);
  if (rig->timed) {
    report.prefill.ops = shares_of(rig->timed->take(TimedDevice::kPrefill), prefill, report);
    report.decode.ops = shares_of(rig->timed->take(TimedDevice::kDecode), decode, report);
  }
  if (options.n_requests > 0) {
    KVASIR_TRY(const Served served,
               serve(*rig, options.n_requests, options.n_prefill, options.n_decode));
    report.n_requests = options.n_requests;
    report.served_tps = static_cast<double>(served.n_tokens) / served.seconds;
    report.served_busy = served.busy_s / served.seconds;
  }
  return report;
}

json::Value to_json(const Report& r) {
  return json::Object{{"model", r.model},
                      {"backend", r.backend},
                      {"kv", r.kv},
                      {"random_weights", r.has_random_weights},
                      {"threads", r.n_threads},
                      {"n_prefill", r.n_prefill},
                      {"n_decode", r.n_decode},
                      {"rows", r.n_rows},
                      {"library_ways", backend::cuda::library_ways().n_used},
                      {"library_ways_refused", backend::cuda::library_ways().n_refused},
                      {"prefill_tps", r.prefill.tokens_per_second},
                      {"decode_tps", r.decode.tokens_per_second},
                      {"prefill", phase_json(r.prefill)},
                      {"decode", phase_json(r.decode)},
                      {"read_gb_s", r.read_gb_s},
                      {"fma_gflop_s", r.fma_gflop_s},
                      {"float_unit", r.float_unit},
                      {"float_gflop_s", r.float_gflop_s},
                      {"shared_time", r.shared_time},
                      {"decode_busy", r.decode_busy},
                      {"requests", r.n_requests},
                      {"served_tps", r.served_tps},
                      {"served_busy", r.served_busy}};
}

std::string to_table(const Report& r) {
  char head[320];
  std::snprintf(
      head, sizeof(head),
      "%s%s · %s · KV %s · %d threads · %u rows · limits here: read %.1f GB/s, %s %.0f GFLOP/s\n",
      r.model.c_str(), r.has_random_weights ? " (random weights)" : "", r.backend.c_str(),
      r.kv.c_str(), r.n_threads, r.n_rows, r.read_gb_s, r.float_unit.c_str(), r.float_gflop_s);
  std::string out = head;
  if (r.shared_time > 0.05) {
    std::snprintf(head, sizeof(head),
                  "other threads ran on these cores %.0f %% of the time: speeds are lower for it\n",
                  100 * r.shared_time);
    out += head;
  }
  out += phase_line("prefill", r.n_prefill * r.n_rows, r.prefill, r) +
         phase_line("decode", r.n_decode * r.n_rows, r.decode, r) +
         ops_table("prefill", r.prefill) + ops_table("decode", r.decode);
  if (r.decode_busy > 0) {
    std::snprintf(head, sizeof(head), "device at work in %.1f %% of the decode time\n",
                  100 * r.decode_busy);
    out += head;
  }
  if (r.n_requests > 0) {
    std::snprintf(head, sizeof(head), "%u requests of %u in, %u out: %.1f tok/s generated\n",
                  r.n_requests, r.n_prefill, r.n_decode, r.served_tps);
    out += head;
  }
  return out;
}

}  // namespace kvasir::bench
