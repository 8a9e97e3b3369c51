#include "kvasir/verify/shadow_device.h"

#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kvasir/verify/device_memory.h"

namespace kvasir::verify {
namespace {

class PackedPair final : public ops::PackedMatrix {
 public:
  PackedPair(std::unique_ptr<ops::PackedMatrix> first,
             std::unique_ptr<ops::PackedMatrix> second,
             std::vector<double> row_norms)
      : PackedMatrix(first->n_out(), first->n_in()),
        first_(std::move(first)),
        second_(std::move(second)),
        norms_(std::move(row_norms)) {}
  std::size_t size_bytes() const noexcept override { return first_->size_bytes(); }
  const ops::PackedMatrix* first() const noexcept { return first_.get(); }
  const ops::PackedMatrix* second() const noexcept { return second_.get(); }
  const std::vector<double>& row_norms() const noexcept { return norms_; }

 private:
  std::unique_ptr<ops::PackedMatrix> first_, second_;
  std::vector<double> norms_;  // [n_out], Euclidean
};

const PackedPair& pair_of(const ops::PackedMatrix* m) noexcept {
  return static_cast<const PackedPair&>(*m);
}

double norm_of(const float* x, std::size_t n) noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double(x[i]) * x[i];
  return std::sqrt(sum);
}

std::vector<double> row_norms(const codec::WeightMatrix& weight) {
  std::vector<double> out;
  std::vector<float> row(weight.n_in);
  for (std::uint32_t r = 0; r < weight.n_out; ++r) {
    weight.decode(r, row.data());
    out.push_back(norm_of(row.data(), row.size()));
  }
  return out;
}

bool same_bits(float a, float b) noexcept {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace

ShadowDevice::ShadowDevice(std::unique_ptr<ops::Device> device,
                           std::unique_ptr<ops::Device> shadow,
                           double units)
    : WrappedDevice(std::move(device)), shadow_(std::move(shadow)), units_(units) {
  table_.embed = &ShadowDevice::embed;
  table_.linear = &ShadowDevice::linear;
  if (!inner().shares_host_memory()) table_.moe_experts = &ShadowDevice::moe_experts;
}

Result<std::unique_ptr<ops::PackedMatrix>> ShadowDevice::pack(const codec::WeightMatrix& weight,
                                                              ops::PackOptions options) {
  KVASIR_TRY(auto first, inner().pack(weight, options));
  KVASIR_TRY(auto second, shadow_->pack(weight, options));
  return std::unique_ptr<ops::PackedMatrix>(
      std::make_unique<PackedPair>(std::move(first), std::move(second), row_norms(weight)));
}

void ShadowDevice::embed(ops::Device& device, const ops::EmbedArgs& args) noexcept {
  ops::Device& inner_device = static_cast<ShadowDevice&>(device).inner();
  ops::EmbedArgs inner_args = args;
  inner_args.table = pair_of(args.table).first();
  inner_device.ops().embed(inner_device, inner_args);
}

// The shadow reads what the first device reads, before that one may overwrite it.
void ShadowDevice::linear(ops::Device& device, const ops::LinearArgs& args) noexcept {
  auto& self = static_cast<ShadowDevice&>(device);
  const PackedPair& pair = pair_of(args.weight);
  const std::vector<float> x = to_host(self.inner(), args.x);
  std::vector<float> bias;
  if (args.bias) bias = to_host(self.inner(), {args.bias, 1, pair.n_out(), pair.n_out()});
  self.expected_.resize(std::size_t{args.out.n_rows} * args.out.n_cols);
  self.shadow_->ops().linear(
      *self.shadow_, {.x = {x.data(), args.x.n_rows, args.x.n_cols, args.x.n_cols},
                      .weight = pair.second(),
                      .bias = args.bias ? bias.data() : nullptr,
                      .out = mat_view(self.expected_.data(), args.out.n_rows, args.out.n_cols)});

  ops::LinearArgs inner_args = args;
  inner_args.weight = pair.first();
  self.inner().ops().linear(self.inner(), inner_args);
  self.compare(x, to_host(self.inner(), args.out), pair.row_norms());
}

void ShadowDevice::compare(const std::vector<float>& x,
                           const std::vector<float>& got,
                           const std::vector<double>& norms) {
  const std::size_t n_out = norms.size(), n_rows = got.size() / n_out, n_in = x.size() / n_rows;
  const double unit = std::ldexp(units_ * static_cast<double>(n_in), -24);
  for (std::size_t r = 0; r < n_rows; ++r) {
    const double x_norm = norm_of(&x[r * n_in], n_in);
    for (std::size_t c = 0; c < n_out; ++c) {
      const float a = got[r * n_out + c], b = expected_[r * n_out + c];
      ++n_outputs_;
      if (same_bits(a, b)) continue;
      if (!(std::fabs(double(a) - b) <= unit * x_norm * norms[c])) ++n_differ_;
    }
  }
}

// Experts of a device whose routing the host does not see: as the device runs them.
void ShadowDevice::moe_experts(ops::Device& device, const ops::MoeExpertsArgs& args) noexcept {
  ops::Device& inner_device = static_cast<ShadowDevice&>(device).inner();
  std::vector<ops::ExpertWeights> bank(args.bank.begin(), args.bank.end());
  for (ops::ExpertWeights& expert : bank) {
    for (const ops::PackedMatrix** m : {&expert.gate, &expert.up, &expert.down})
      *m = pair_of(*m).first();
  }
  ops::MoeExpertsArgs inner_args = args;
  inner_args.bank = bank;
  inner_device.ops().moe_experts(inner_device, inner_args);
  const Status done = inner_device.synchronize();  // the bank goes when this returns
  KVASIR_CHECK(done.has_value()) << done.error().what;
}

}  // namespace kvasir::verify
