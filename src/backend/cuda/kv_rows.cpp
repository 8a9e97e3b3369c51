// Writing KV rows: appends and conversion.
#include "backend/cuda/device/kv_rows.h"

#include "backend/cuda/detail/kv_args.h"

namespace kvasir::backend::cuda {

void kv_append(ops::Device& device, const ops::KvAppendArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  const auto rows = cuda.rows_of(a.kv.rows, a.kv.block_tokens, a.k.n_rows);
  launch_append(cuda.queue(),
                {.x = {mat_of(a.k), mat_of(a.v)}, .layer = layer_of(a.kv), .rows = rows.view.rows},
                rows.n_rows, bucket_of(rows.most_new));
}

void kv_convert(ops::Device& device, const ops::KvConvertArgs& a) noexcept {
  if (a.begin >= a.end) return;
  CudaDevice& cuda = cuda_of(device);
  const auto table = [&](const BlockId* blocks) {
    const std::size_t n = (a.end + a.kv.block_tokens - 1) / a.kv.block_tokens;
    return reinterpret_cast<const std::uint32_t*>(cuda.stage(std::span<const BlockId>(blocks, n)));
  };
  launch_convert(cuda.queue(), {.layer = layer_of(a.kv),
                                .from = table(a.from),
                                .to = table(a.to),
                                .begin = a.begin,
                                .end = a.end});
}

}  // namespace kvasir::backend::cuda
