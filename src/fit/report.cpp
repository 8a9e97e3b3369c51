#include "fit/report.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/byte_size.h"
#include "fit/detail/saturating.h"
#include "fit/memory.h"

namespace kvasir::fit {
namespace {

constexpr std::uint64_t kShortContext = 2048;

// "412", "24.3", "0.81": three digits.
std::string speed_text(double tps) {
  std::array<char, 48> text{};
  const int decimals = tps >= 99.95 ? 0 : tps >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, tps);
  return text.data();
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

// The context that stands for a model where none was asked for.
std::uint64_t usual_context(std::uint64_t limit) { return std::min(kUsualContext, limit); }

json::Object report_json(const Report& r) {
  return {{"context", r.context},
          {"fits", r.fits},
          {"weights_bytes", r.weights_bytes},
          {"kv_bytes", r.kv_bytes},
          {"transient_bytes", r.transient_bytes},
          {"fixed_bytes", r.fixed_bytes},
          {"total_bytes", r.total_bytes},
          {"usable_bytes", r.usable_bytes},
          {"max_context", r.max_context},
          {"kv_budget_bytes", r.kv_budget},
          {"full_bytes", r.full_bytes},
          {"rows_at_once", r.rows_at_once},
          {"predicted_decode_tps", r.predicted_decode_tps},
          {"predicted_prefill_tps", r.predicted_prefill_tps}};
}

std::string report_text(const Report& r) {
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += padded(name, 18) + value + "\n";
  };
  line("at context", std::to_string(r.context) + (r.fits ? ", fits" : ", does not fit"));
  line("  weights", format_bytes(r.weights_bytes));
  line("  KV", format_bytes(r.kv_bytes));
  line("  one step", format_bytes(r.transient_bytes));
  line("  fixed", format_bytes(r.fixed_bytes));
  line("  total", format_bytes(r.total_bytes) + " of " + format_bytes(r.usable_bytes));
  line("longest context", std::to_string(r.max_context));
  if (r.kv_bytes > 0)
    line("KV budget", format_bytes(r.kv_budget) + ", " + std::to_string(r.rows_at_once) +
                          " requests of that context at once");
  return out;
}

}  // namespace

Report make_report(const Facts& facts,
                   const MachineSpeed& machine,
                   std::uint64_t usable_bytes,
                   std::uint64_t context) {
  Report r;
  r.context = context;
  r.fits = fits(facts, context, usable_bytes);
  r.weights_bytes = facts.weight_bytes;
  r.kv_bytes = kv_needed(facts, context);
  r.transient_bytes = transient_bytes(facts, context);
  r.fixed_bytes = facts.fixed_bytes;
  r.total_bytes = total_bytes(facts, context);
  r.usable_bytes = usable_bytes;
  r.max_context = max_context(facts, usable_bytes);
  r.kv_budget = kv_budget(facts, usable_bytes);
  r.full_bytes = full_bytes(facts, usable_bytes);
  r.rows_at_once = r.kv_bytes > 0 ? r.kv_budget / r.kv_bytes : 0;
  r.predicted_decode_tps = predicted_decode_tps(facts, machine, context);
  r.predicted_prefill_tps = predicted_prefill_tps(facts, machine, context);
  return r;
}

std::vector<SpeedAt> speeds_that_fit(const Facts& facts,
                                     const MachineSpeed& machine,
                                     std::uint64_t max_context,
                                     std::uint64_t batch) {
  std::vector<SpeedAt> out;
  for (const std::uint64_t n : {std::uint64_t{1024}, std::uint64_t{8192}, std::uint64_t{32768}}) {
    if (n > max_context) break;
    out.push_back({.context = n,
                   .decode_tps = predicted_decode_tps(facts, machine, n),
                   .batch_decode_tps = predicted_decode_tps(facts, machine, n, batch),
                   .prefill_tps = predicted_prefill_tps(facts, machine, n)});
  }
  return out;
}

json::Value to_json(const FitReport& f) {
  json::Object out = report_json(f.report);
  out["model"] = f.model;
  out["scheme"] = f.scheme;
  out["model_context"] = f.model_context;
  out["batch"] = f.batch;
  out["threads"] = f.n_threads;
  json::Array schemes, speeds;
  for (const SchemeContext& s : f.schemes) {
    json::Object entry{{"scheme", s.scheme}};
    if (s.not_applicable.empty())
      entry["max_context"] = s.max_context;
    else
      entry["not_applicable"] = s.not_applicable;
    schemes.push_back(std::move(entry));
  }
  for (const SpeedAt& s : f.speeds) {
    speeds.push_back(json::Object{{"context", s.context},
                                  {"decode_tps", s.decode_tps},
                                  {"batch_decode_tps", s.batch_decode_tps},
                                  {"prefill_tps", s.prefill_tps}});
  }
  out["schemes"] = std::move(schemes);
  out["speeds"] = std::move(speeds);
  return out;
}

std::string to_text(const FitReport& f) {
  std::string out = f.model + " · KV " + f.scheme + " · context of the model " +
                    std::to_string(f.model_context) + " · " + std::to_string(f.n_threads) +
                    " threads\n" + report_text(f.report);
  out += "longest context for each --kv-quant\n";
  for (const SchemeContext& s : f.schemes) {
    out += "  " + padded(s.scheme, 16) +
           (s.not_applicable.empty() ? std::to_string(s.max_context)
                                     : "not applicable: " + s.not_applicable) +
           "\n";
  }
  if (f.speeds.empty()) return out;
  out += "predicted tok/s\n  " + padded("context", 16) + padded("decode", 12) +
         padded("decode of " + std::to_string(f.batch), 16) + "prefill\n";
  for (const SpeedAt& s : f.speeds) {
    out += "  " + padded(std::to_string(s.context), 16) + padded(speed_text(s.decode_tps), 12) +
           padded(speed_text(s.batch_decode_tps), 16) + speed_text(s.prefill_tps) + "\n";
  }
  return out;
}

Status check_load(std::string_view model, const Facts& facts, std::uint64_t usable_bytes) {
  if (max_context(facts, usable_bytes) > 0) return {};
  return Error{Errc::capacity,
               std::string(model) + " does not fit: weights " + format_bytes(facts.weight_bytes) +
                   " + fixed " + format_bytes(facts.fixed_bytes) + " + one step " +
                   format_bytes(transient_bytes(facts, facts.chunk)) +
                   " leave no room for any context in " + format_bytes(usable_bytes) +
                   ". Try a smaller quantization, --kv-quant 4, or --memory-budget"};
}

std::string short_context_warning(std::string_view model,
                                  const Facts& facts,
                                  std::uint64_t usable_bytes) {
  const std::uint64_t context = max_context(facts, usable_bytes);
  if (context >= std::min(kShortContext, facts.max_positions)) return {};
  return std::string(model) + " fits with a context of only " + std::to_string(context) +
         " tokens in " + format_bytes(usable_bytes);
}

std::string startup_line(std::string_view repo,
                         const Facts& facts,
                         const MachineSpeed& machine,
                         std::uint64_t max_context,
                         bool is_auto_picked) {
  const double tps = predicted_decode_tps(facts, machine, usual_context(max_context));
  const std::string speed = tps > 0 ? " · ~" + speed_text(tps) + " tok/s predicted" : "";
  return std::string(repo) + " · " + format_bytes(facts.weight_bytes) + speed + " · context " +
         std::to_string(max_context) + (is_auto_picked ? " (auto-picked)" : "");
}

Result<std::size_t> pick_model(std::span<const LocalModel> models) {
  std::size_t best = models.size();
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (!models[i].fits_usual_context) continue;
    const bool is_better =
        best == models.size() || models[i].weight_bytes > models[best].weight_bytes ||
        (models[i].weight_bytes == models[best].weight_bytes && models[i].name < models[best].name);
    if (is_better) best = i;
  }
  if (best == models.size()) return not_found("no local model fits; see kvasir ls");
  return best;
}

}  // namespace kvasir::fit
