// What the memory model says of one model on one machine, as a value, as JSON and in the texts that
// users see (spec FIT-10, FIT-13, 22 to 24, 33). Sizes are raw bytes in JSON, decimal units in
// texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fit/facts.h"
#include "fit/speed.h"
#include "json/json.h"

namespace kvasir::fit {

inline constexpr std::uint64_t kUsualContext = 8192;  // FIT-23, FIT-24

struct Report {  // FIT-10, at a context of `context` tokens
  std::uint64_t context = 0;
  bool fits = false;
  std::uint64_t weights_bytes = 0, kv_bytes = 0, transient_bytes = 0, fixed_bytes = 0,
                total_bytes = 0, usable_bytes = 0;
  std::uint64_t max_context = 0;    // of one row alone (FIT-13)
  std::uint64_t kv_budget = 0;      // the pool that all rows share (FIT-9)
  std::uint64_t full_bytes = 0;     // the total with that pool in use
  std::uint64_t rows_at_once = 0;   // rows of `context` tokens that the pool holds together
  double predicted_decode_tps = 0;  // one row
  double predicted_prefill_tps = 0;
};
Report make_report(const Facts& facts,
                   const MachineSpeed& machine,
                   std::uint64_t usable_bytes,
                   std::uint64_t context);

// The longest context under one KV scheme; or why the model's layers cannot have it.
struct SchemeContext {
  std::string scheme;  // "exact", "8", "4", "turbo"
  std::uint64_t max_context = 0;
  std::string not_applicable;  // empty: it is
};

struct SpeedAt {
  std::uint64_t context = 0;
  double decode_tps = 0;        // one row
  double batch_decode_tps = 0;  // of `batch` rows together
  double prefill_tps = 0;
};

struct FitReport {  // of `kvasir fit`
  std::string model, scheme;
  std::uint64_t model_context = 0, batch = 1;
  std::int64_t n_threads = 0;
  Report report;
  std::vector<SchemeContext> schemes;
  std::vector<SpeedAt> speeds;  // lengths that fit
};
// At 1k, 8k and 32k, of those the ones that fit.
std::vector<SpeedAt> speeds_that_fit(const Facts& facts,
                                     const MachineSpeed& machine,
                                     std::uint64_t max_context,
                                     std::uint64_t batch);

json::Value to_json(const FitReport& report);
std::string to_text(const FitReport& report);  // lines end in '\n'

// FIT-22. Ok when some context fits.
Status check_load(std::string_view model, const Facts& facts, std::uint64_t usable_bytes);
// FIT-22: what to warn of a context below 2048 that the memory, not the model, sets; else empty.
std::string short_context_warning(std::string_view model,
                                  const Facts& facts,
                                  std::uint64_t usable_bytes);
// FIT-23, at the usual context or the limit.
std::string startup_line(std::string_view repo,
                         const Facts& facts,
                         const MachineSpeed& machine,
                         std::uint64_t max_context,
                         bool is_auto_picked);

struct LocalModel {
  std::string name;
  std::uint64_t weight_bytes = 0;
  bool fits_usual_context = false;
};
// FIT-24: index of the largest model that fits, ties by name. Error: `no local model fits; see
// kvasir ls`.
Result<std::size_t> pick_model(std::span<const LocalModel> models);

}  // namespace kvasir::fit
