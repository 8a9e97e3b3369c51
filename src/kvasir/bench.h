// Speed of one model: prefill and decode by the engine's own steps (scheduler to delivery, no
// text), with the bytes and operations they need and the share of this machine's measured limits.
// Runs on the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "kvasir/options.h"

namespace kvasir::bench {

struct Options {
  OpenOptions open;
  std::uint32_t n_prefill = 512;  // prompt tokens of a row
  std::uint32_t n_decode = 64;    // tokens of a row after it, one a step
  std::uint32_t n_rows = 1;       // rows that decode together
  std::uint32_t n_requests = 0;   // of that size, served once as they come; 0: none
  std::uint32_t n_runs = 5;       // after a short warm-up; limits are measured before each
  bool by_op = false;             // every operation is timed; a GPU waits for each, and is slower
};

// An operation in one phase of a run: means over the runs.
struct OpShare {
  std::string name;
  double n_calls = 0;
  double milliseconds = 0;
  double share_of_time = 0;  // of the phase
  double share_of_read = 0;  // of the limits; 0 where bytes, or operations, are not counted
  double share_of_float = 0;
};

struct Phase {
  double tokens_per_second = 0;  // of all rows; median over the runs
  double min = 0, max = 0;
  double bytes_per_token = 0;  // weights and KV read
  double flops_per_token = 0;
  double share_of_read = 0;   // of the read bandwidth
  double share_of_float = 0;  // of the float unit's operations
  std::vector<OpShare> ops;   // by time; empty unless asked for
  // What bounds the speed is the limit that it is closer to.
  double share_of_limit() const noexcept { return std::max(share_of_read, share_of_float); }
};

struct Report {
  std::string model, backend;
  std::string kv;  // its scheme's key (KV-2)
  bool has_random_weights = false;
  int n_threads = 0;
  std::uint32_t n_prefill = 0, n_decode = 0, n_rows = 1;
  Phase prefill, decode;
  // Medians of the measured limits.
  double read_gb_s = 0;
  double fma_gflop_s = 0;
  // The fastest for these products: "amx bf16", "f32 FMA"; "avx512-vnni int8" with int8
  // activations.
  std::string float_unit;
  double float_gflop_s = 0;
  double shared_time = -1;  // backend::cpu::Limits'
  // Of a device that runs behind the host: how much of the decode time it was at work (median).
  double decode_busy = 0;
  std::uint32_t n_requests = 0;  // as asked; generated tokens a second, and how busy the device was
  double served_tps = 0, served_busy = 0;
};

Result<Report> run(const Options& options);
json::Value to_json(const Report& report);
std::string to_table(const Report& report);

}  // namespace kvasir::bench
