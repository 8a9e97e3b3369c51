#include "kvasir/bench/timed_device.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>
#include <utility>

namespace kvasir::bench {
namespace {

using T = ops::OpTable;

struct Work {
  double bytes = 0, flops = 0;
  Work& operator+=(const Work& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

// Of most ops the time alone is shown: they read and write activations.
template <class Args>
Work work_of(const Args&) {
  return {};
}
Work work_of(const ops::PackedMatrix& w, std::uint32_t n_rows) {
  return {static_cast<double>(w.size_bytes()), 2.0 * n_rows * w.n_in() * w.n_out()};
}
Work work_of(const ops::LinearArgs& a) { return work_of(*a.weight, a.x.n_rows); }
Work work_of(std::uint32_t n_rows, std::span<const ops::LinearPart> parts) {
  Work out;
  for (const ops::LinearPart& part : parts) out += work_of(*part.weight, n_rows);
  return out;
}
Work work_of(const ops::LinearGroupArgs& a) { return work_of(a.x.n_rows, a.parts); }
Work work_of(const ops::GatedLinearArgs& a) { return work_of(a.x.n_rows, a.parts); }
Work work_of(const ops::GatedMlpArgs& a) {
  Work out = work_of(a.gated);
  return out += work_of(*a.down.weight, a.out.n_rows);
}

// Keys that queries at positions begin … end - 1 see.
double keys_of(std::uint32_t begin, std::uint32_t end, std::uint32_t window) {
  double keys = 0;
  for (std::uint32_t q = begin; q < end; ++q) keys += window == 0 ? q + 1 : std::min(q + 1, window);
  return keys;
}

Work work_of(const ops::AttentionArgs& a) {
  Work out;
  for (const KvRowView& row : a.kv.rows) {
    if (row.n_new == 0) continue;
    const std::uint32_t end = row.length + row.n_new;
    const double heads = double(a.n_heads) * a.kv.head_dim;
    out.flops +=
        4 * heads *
        (a.both_ways ? double(row.n_new) * row.n_new : keys_of(row.length, end, a.kv.window));
    double row_bytes = 0;
    for (const KvEncodedSide& side : {a.kv.k_side(row.is_encoded), a.kv.v_side(row.is_encoded)})
      for (const std::size_t bytes : side.row_bytes) row_bytes += static_cast<double>(bytes);
    const std::uint32_t seen = a.kv.window == 0 ? end : std::min(end, a.kv.window + row.n_new - 1);
    out.bytes += double(seen) * a.kv.n_kv_heads * row_bytes;
  }
  return out;
}

template <auto Member, std::size_t kIndex, class Args>
void timed(ops::Device& device, const Args& args) noexcept {
  auto& self = static_cast<TimedDevice&>(device);
  ops::Device& inner = self.inner();
  const auto begin = std::chrono::steady_clock::now();
  (inner.ops().*Member)(inner, args);
  if (!inner.shares_host_memory()) (void)inner.synchronize();  // a failure stays for end_step()
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const Work work = work_of(args);
  self.add(kIndex, took.count(), work.bytes, work.flops);
}

constexpr auto kMembers =
    std::tuple{&T::embed,        &T::rms_norm,      &T::layer_norm,       &T::linear,
               &T::rope,         &T::kv_append,     &T::kv_convert,       &T::attention,
               &T::act_mul,      &T::gate_rows,     &T::add_scaled,       &T::scale,
               &T::gather_rows,  &T::l2_norm,       &T::causal_conv,      &T::delta_gates,
               &T::gated_delta,  &T::latent_append, &T::latent_attention, &T::index_select,
               &T::head_linear,  &T::moe_route,     &T::moe_experts,      &T::linear_group,
               &T::gated_linear, &T::gated_mlp,     &T::add_norm,         &T::query_key,
               &T::pick};
constexpr std::string_view kNames[] = {
    "embed",        "rms_norm",      "layer_norm",       "linear",
    "rope",         "kv_append",     "kv_convert",       "attention",
    "act_mul",      "gate_rows",     "add_scaled",       "scale",
    "gather_rows",  "l2_norm",       "causal_conv",      "delta_gates",
    "gated_delta",  "latent_append", "latent_attention", "index_select",
    "head_linear",  "moe_route",     "moe_experts",      "linear_group",
    "gated_linear", "gated_mlp",     "add_norm",         "query_key",
    "pick"};
constexpr std::size_t kCount = std::size(kNames);
static_assert(std::tuple_size_v<decltype(kMembers)> == kCount);
static_assert(sizeof(T) == kCount * sizeof(void*));  // no entry is left out

template <std::size_t... kIndex>
void wrap(T& table, std::index_sequence<kIndex...>) {
  ((table.*std::get<kIndex>(kMembers) = timed<std::get<kIndex>(kMembers), kIndex>), ...);
}

}  // namespace

TimedDevice::TimedDevice(std::unique_ptr<ops::Device> inner, std::uint32_t n_rows)
    : WrappedDevice(std::move(inner)), n_rows_(n_rows) {
  static_assert(kCount <= kOps);
  wrap(table_, std::make_index_sequence<kCount>());
  for (auto& times : times_)
    for (std::size_t i = 0; i < kCount; ++i) times[i].name = kNames[i];
}

void TimedDevice::begin_step(std::size_t n_tokens) noexcept {
  phase_ = n_tokens > n_rows_ ? kPrefill : kDecode;
}

std::vector<OpTime> TimedDevice::take(Phase phase) {
  std::vector<OpTime> out;
  for (OpTime& time : times_[phase]) {
    if (time.n_calls > 0) out.push_back(time);
    time = {.name = time.name};
  }
  std::sort(out.begin(), out.end(),
            [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return out;
}

void TimedDevice::add(std::size_t op, double seconds, double bytes, double flops) noexcept {
  OpTime& time = times_[phase_][op];
  ++time.n_calls;
  time.seconds += seconds;
  time.bytes += bytes;
  time.flops += flops;
}

}  // namespace kvasir::bench
