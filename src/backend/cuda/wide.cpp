// Products of up to 64 rows by whole warpgroups: several weights of one input in one launch.
#include "backend/cuda/device/wide.h"

#include <algorithm>

#include "backend/cuda/detail/products.h"

namespace kvasir::backend::cuda {
namespace {

bool is_of_format(const Weight& a, const Weight& b) noexcept {
  return a.k == b.k && a.n_in == b.n_in && a.code == b.code && a.scale == b.scale &&
         a.has_bias == b.has_bias && a.group == b.group && a.offset == b.offset;
}

bool serves(std::span<const ops::LinearPart> parts) noexcept {
  const Weight& first = matrix_of(parts[0].weight).weight;
  return has_wide_products() && parts.size() <= kMaxWideParts && first.code != Code::f32 &&
         std::all_of(parts.begin(), parts.end(), [&](const ops::LinearPart& part) {
           return is_of_format(first, matrix_of(part.weight).weight);
         });
}

WideArgs arguments(CudaDevice& device,
                   ConstMatView x,
                   std::span<const ops::LinearPart> parts,
                   MatView out) {
  WideArgs args{};
  for (const ops::LinearPart& part : parts) {
    const Weight& w = matrix_of(part.weight).weight;
    const std::uint32_t column = args.n_parts == 0 ? 0
                                                   : args.parts[args.n_parts - 1].out_column +
                                                         args.parts[args.n_parts - 1].n_out;
    args.parts[args.n_parts++] = {w.data, part.bias, w.n_out, 0, column, 0};
  }
  args.format = matrix_of(parts[0].weight).weight;
  Products& products = device.products();
  if (x.n_rows <= kUnroundedRows && is_whole_pieces(x, args.format.n_in) &&
      !products.is_converted(x, args.format.k, Products::kWideTiles)) {
    args.x_rows = x.data;
    args.x_stride = x.stride;
  } else {
    args.x = products.converted(x, args.format.k, Products::kWideTiles);
  }
  args.n_rows = x.n_rows;
  args.out = out.data;
  args.out_stride = out.stride;
  args.n_sms = static_cast<std::uint32_t>(device.n_multiprocessors());
  return args;
}

}  // namespace

bool multiply_wide(CudaDevice& device,
                   ConstMatView x,
                   std::span<const ops::LinearPart> parts,
                   MatView out) noexcept {
  if (!serves(parts)) return false;
  const WideArgs args = arguments(device, x, parts, out);
  const std::uint64_t at = device.queue().n_changes();
  launch_wide(device.queue(), args);
  device.products().keep_converted(at, out);
  return true;
}

bool multiply_wide(
    CudaDevice& device, const Weight& w, const void* x, const float* bias, MatView out) noexcept {
  if (!has_wide_products() || w.code == Code::f32) return false;
  WideArgs args{};
  args.parts[args.n_parts++] = {w.data, bias, w.n_out, 0, 0, 0};
  args.format = w;
  args.x = device.products().wide_tiles(x, out.n_rows, w.k);
  args.n_rows = out.n_rows;
  args.out = out.data;
  args.out_stride = out.stride;
  args.n_sms = static_cast<std::uint32_t>(device.n_multiprocessors());
  launch_wide(device.queue(), args);
  return true;
}

bool multiply_gated(CudaDevice& device,
                    ConstMatView x,
                    std::span<const ops::LinearPart> parts,
                    Act activation,
                    MatView out,
                    bool is_rounded_only) noexcept {
  if (x.n_rows > kManyRows || parts.size() != 2 || !serves(parts) ||
      parts[0].weight->n_out() != parts[1].weight->n_out())
    return false;
  WideArgs args = arguments(device, x, parts, out);
  const Bf16Copy copy =
      device.products().copy_of_next(out.n_rows, out.n_cols, Products::CopyOf::product);
  if (args.x && args.x == copy.data) return false;  // x is such a result itself
  args.copy = copy;
  args.is_gated = 1;
  if (is_rounded_only) args.out = nullptr;
  args.activation = activation;
  launch_wide(device.queue(), args);
  device.products().keep_copy(out, copy);
  return true;
}

bool takes_rounded(const Weight& w, std::uint32_t n_cols) noexcept {
  return has_wide_products() && w.code != Code::f32 && n_cols % kChunkK == 0;
}

}  // namespace kvasir::backend::cuda
