// The memory model (fit/) of a model on disk or of a loaded one: what it takes, the longest
// context, predicted speed. fit_model reads headers, norms and biases, never the weights. Any
// thread; the machine's speed is measured in about a second on the calling one.
#pragma once

#include <cstdint>
#include <string>

#include "fit/facts.h"
#include "fit/report.h"
#include "fit/speed.h"
#include "formats/model_files.h"
#include "kv/kv_scheme.h"
#include "kv/kv_store.h"
#include "kvasir/options.h"

namespace kvasir::model {
class Model;
}

namespace kvasir {

// FIT-1: the flag's, or what this machine lets a process use of its memory.
std::uint64_t usable_bytes(const OpenOptions& options);

// text_bytes: what the loaded tokenizer and template hold. max_positions: the context to serve, at
// most the model's. Errors: forms_of's for the scheme.
Result<fit::Facts> facts_of(const model::Model& model,
                            const formats::ModelFiles& files,
                            const OpenOptions& options,
                            const kv::KvScheme& scheme,
                            std::uint64_t text_bytes,
                            std::uint64_t max_positions);

// A model on this machine before any weight is read: what the server, `kvasir fit` and /fit all
// judge by.
struct SizedModel {
  std::string name;
  fit::Facts facts;  // max_positions: what is to be served
  kv::KvScheme scheme;
  KvList list;
  std::uint64_t model_context = 0;
  std::uint64_t usable_bytes = 0;  // FIT-1
};
// Errors: those of opening the model; `context length N exceeds the model's M` (FIT-12).
Result<SizedModel> size_model(const formats::ModelFiles& files,
                              ops::Device& device,
                              const OpenOptions& options,
                              std::uint64_t text_bytes);
// The store that the facts promise.
kv::KvStoreOptions store_options_of(const SizedModel& sized, const OpenOptions& options);
fit::FitReport report_of(const SizedModel& sized,
                         const OpenOptions& options,
                         const fit::MachineSpeed& machine,
                         std::uint64_t context);

// FIT-16. Blocks for about a second.
fit::MachineSpeed measure_machine(int n_threads);

struct FitOptions {
  OpenOptions open;  // context_length: what to report at; 0: the usual
};
// FIT-33. Errors: those of opening the model; FIT-12's; capacity with FIT-22's text.
Result<fit::FitReport> fit_model(const FitOptions& options);

}  // namespace kvasir
