// What `kvasir bench` times: the engine's own steps, from queue to delivery (scheduler, KV,
// forward, sampling), without text. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "kvasir/bench.h"
#include "kvasir/bench/timed_device.h"
#include "model/model.h"

namespace kvasir::bench {

// An open model behind an engine without a prefix cache.
struct EngineRig {
  SteadyClock clock;
  std::unique_ptr<ops::Device> device;
  TimedDevice* timed = nullptr;  // device, where ops are timed one by one
  std::unique_ptr<model::Model> model;
  std::unique_ptr<engine::Engine> engine;
  DType kv_type = DType::bf16;
  std::string kv_key;               // of the scheme: "bf16", "turbo-k8v3"
  std::uint64_t kv_transition = 0;  // from this depth on keys and values are read encoded, and
  double kv_encoded_share = 1;      // take this share of their exact bytes
  bool has_random_weights = false;
};
Result<std::unique_ptr<EngineRig>> open_rig(const Options& options);

struct Timing {
  double prefill_s = 0, decode_s = 0;
  double decode_busy_s = 0;  // of the device while decode ran (ops::Device::busy_seconds)
};

// All rows' prompts, then all rows step by step: consumers rest until every row has its first
// token.
Result<Timing> time_rows(EngineRig& rig,
                         std::uint32_t n_rows,
                         std::uint32_t n_prefill,
                         std::uint32_t n_decode);

struct Served {
  double seconds = 0, busy_s = 0;
  std::uint64_t n_tokens = 0;  // generated
};

// So many requests at once, as many as there are rows running together.
Result<Served> serve(EngineRig& rig,
                     std::uint32_t n_requests,
                     std::uint32_t n_prefill,
                     std::uint32_t n_decode);

}  // namespace kvasir::bench
