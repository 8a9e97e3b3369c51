#include "fit/speed.h"

#include <algorithm>

#include "fit/detail/saturating.h"

namespace kvasir::fit {
namespace {

double efficiency_of(const Facts& facts, const MachineSpeed& machine) noexcept {
  return machine.efficiency.value_or(facts.is_moe ? 0.76 : 0.82);
}

// Keys that the tokens of a prompt of n see of a layer, on average.
double average_keys(std::uint64_t n, std::uint32_t window) noexcept {
  const auto all = static_cast<double>(n), w = static_cast<double>(window);
  if (window == 0 || n <= window) return (all + 1) / 2;
  return (w * (w + 1) / 2 + (all - w) * w) / all;
}

double attention_flops(const Facts& facts, std::uint64_t n) noexcept {
  double flops = 0;
  for (const ReadLayer& read : facts.reads)
    flops +=
        static_cast<double>(read.flops_per_key) * average_keys(n, facts.state[read.state].window);
  return flops;
}

}  // namespace

std::uint64_t weight_read_bytes(const Facts& facts, std::uint64_t step_tokens) noexcept {
  const std::uint64_t more = times(facts.more_read_bytes, minus(step_tokens, 1));
  return std::min(plus(facts.weight_read_bytes, more),
                  std::max(facts.all_read_bytes, facts.weight_read_bytes));
}

std::uint64_t kv_read_bytes(const Facts& facts, std::uint64_t n) noexcept {
  std::uint64_t total = 0;
  for (const ReadLayer& read : facts.reads) {
    const StateLayer& layer = facts.state[read.state];
    const bool is_encoded = layer.encoded_bytes > 0 && n >= facts.transition;
    const std::uint64_t keys = layer.window > 0 ? std::min<std::uint64_t>(n, layer.window) : n;
    total = plus(total, plus(times(is_encoded ? layer.encoded_bytes : layer.exact_bytes, keys),
                             layer.constant_bytes));
  }
  return total;
}

double predicted_decode_tps(const Facts& facts,
                            const MachineSpeed& machine,
                            std::uint64_t n,
                            std::uint64_t batch) noexcept {
  const double bytes = static_cast<double>(
      plus(weight_read_bytes(facts, batch), times(batch, kv_read_bytes(facts, n))));
  if (!(bytes > 0) || !(machine.bytes_per_second > 0)) return 0;
  return static_cast<double>(batch) * machine.bytes_per_second * efficiency_of(facts, machine) /
         bytes;
}

double predicted_prefill_tps(const Facts& facts,
                             const MachineSpeed& machine,
                             std::uint64_t n) noexcept {
  const std::uint64_t chunk = std::max<std::uint64_t>(std::min<std::uint64_t>(facts.chunk, n), 1);
  const double flops = static_cast<double>(facts.linear_flops) + attention_flops(facts, n);
  const double bytes =
      static_cast<double>(plus(weight_read_bytes(facts, chunk), kv_read_bytes(facts, n))) /
      static_cast<double>(chunk);
  if (!(flops > 0) || !(bytes > 0)) return 0;
  const double efficiency = efficiency_of(facts, machine);
  return efficiency * std::min(machine.flops_per_second / flops, machine.bytes_per_second / bytes);
}

}  // namespace kvasir::fit
