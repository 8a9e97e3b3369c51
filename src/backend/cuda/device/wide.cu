#include "backend/cuda/device/wide.h"

namespace kvasir::backend::cuda {

void launch_wide(Queue& queue, WideArgs args) {
  std::uint32_t n_tiles = 0;
  for (std::uint32_t i = 0; i < args.n_parts; ++i) {
    args.parts[i].first_tile = args.is_gated ? 0 : n_tiles;
    n_tiles += (args.parts[i].n_out + kTileRows - 1) / kTileRows;
  }
  args.n_tiles = n_tiles;
  switch (args.format.code) {
    case Code::nibble:
      if (args.n_rows <= 8 && launch_mma_nibbles(queue, args)) return;
      return launch_wide_nibbles(queue, args);
    case Code::byte:
      return launch_wide_bytes(queue, args);
    case Code::bf16:
    case Code::f32:
      return launch_wide_dense(queue, args);
  }
}

}  // namespace kvasir::backend::cuda
