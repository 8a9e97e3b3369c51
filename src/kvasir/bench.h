// Speed of one model: prefill and decode, with the bytes and operations they need and the share of
// this machine's measured limits. Runs on the calling thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "kvasir/options.h"

namespace kvasir::bench {

struct Options {
  OpenOptions open;
  std::uint32_t n_prefill = 512;  // prompt tokens
  std::uint32_t n_decode = 64;    // tokens after it, one a step
  std::uint32_t n_runs = 5;       // after one warm-up
};

struct Phase {
  double tokens_per_second = 0;  // median over the runs
  double min = 0, max = 0;
  double bytes_per_token = 0;  // weights and KV read
  double flops_per_token = 0;
  double share_of_limit = 0;  // of bandwidth (decode) or of the FMA rate (prefill)
};

struct Report {
  std::string model, backend;
  int n_threads = 0;
  std::uint32_t n_prefill = 0, n_decode = 0;
  Phase prefill, decode;
  double read_gb_s = 0;  // measured in the same run
  double fma_gflop_s = 0;
};

Result<Report> run(const Options& options);
json::Value to_json(const Report& report);
std::string to_table(const Report& report);

}  // namespace kvasir::bench
