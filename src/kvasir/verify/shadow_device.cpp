#include "kvasir/verify/shadow_device.h"

#include <bit>
#include <cmath>
#include <utility>

namespace kvasir::verify {
namespace {

class PackedPair final : public ops::PackedMatrix {
 public:
  PackedPair(std::unique_ptr<ops::PackedMatrix> first, std::unique_ptr<ops::PackedMatrix> second)
      : PackedMatrix(first->n_out(), first->n_in()),
        first_(std::move(first)),
        second_(std::move(second)) {}
  std::size_t size_bytes() const noexcept override { return first_->size_bytes(); }
  const ops::PackedMatrix* first() const noexcept { return first_.get(); }
  const ops::PackedMatrix* second() const noexcept { return second_.get(); }

 private:
  std::unique_ptr<ops::PackedMatrix> first_, second_;
};

bool same_bits(float a, float b) noexcept {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace

ShadowDevice::ShadowDevice(std::unique_ptr<ops::Device> device, std::unique_ptr<ops::Device> shadow)
    : WrappedDevice(std::move(device)), shadow_(std::move(shadow)) {
  table_.embed = &ShadowDevice::embed;
  table_.linear = &ShadowDevice::linear;
}

Result<std::unique_ptr<ops::PackedMatrix>> ShadowDevice::pack(const codec::WeightMatrix& weight,
                                                              ops::PackOptions options) {
  KVASIR_TRY(auto first, inner().pack(weight, options));
  KVASIR_TRY(auto second, shadow_->pack(weight, options));
  return std::unique_ptr<ops::PackedMatrix>(
      std::make_unique<PackedPair>(std::move(first), std::move(second)));
}

void ShadowDevice::embed(ops::Device& device, const ops::EmbedArgs& args) noexcept {
  ops::Device& inner_device = static_cast<ShadowDevice&>(device).inner();
  ops::EmbedArgs inner_args = args;
  inner_args.table = static_cast<const PackedPair*>(args.table)->first();
  inner_device.ops().embed(inner_device, inner_args);
}

void ShadowDevice::linear(ops::Device& device, const ops::LinearArgs& args) noexcept {
  auto& self = static_cast<ShadowDevice&>(device);
  const auto* pair = static_cast<const PackedPair*>(args.weight);
  self.expected_.resize(std::size_t{args.out.n_rows} * args.out.n_cols);
  ops::LinearArgs shadow_args = args;
  shadow_args.weight = pair->second();
  shadow_args.out = mat_view(self.expected_.data(), args.out.n_rows, args.out.n_cols);
  self.shadow_->ops().linear(*self.shadow_, shadow_args);

  ops::LinearArgs inner_args = args;
  inner_args.weight = pair->first();
  self.inner().ops().linear(self.inner(), inner_args);

  for (std::uint32_t r = 0; r < args.out.n_rows; ++r) {
    for (std::uint32_t c = 0; c < args.out.n_cols; ++c) {
      ++self.n_outputs_;
      if (!same_bits(args.out.row(r)[c], shadow_args.out.row(r)[c])) ++self.n_differ_;
    }
  }
}

}  // namespace kvasir::verify
