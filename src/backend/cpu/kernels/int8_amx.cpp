// Tiles for many rows; few are the AVX-512 kernels' with VNNI, which every CPU with tiles has.
#define KVASIR_ISA_NAME "amx"
#include <cstddef>

#include "backend/cpu/kernels/int8_kernels.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/int8_dots_vnni.h"
#include "backend/cpu/kernels/amx_tiles.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/int8_quantize.inc.h"
#include "backend/cpu/kernels/linear_int8.inc.h"
#include "backend/cpu/kernels/linear_amx_int8.inc.h"
// clang-format on

namespace kvasir::backend::cpu {

const Int8Kernels kAmxInt8Kernels{.name = "amx",
                                  .direct_rows = kInt8DirectRows,
                                  .quantize = &quantize_tiles,
                                  .linear = &linear_int8_tiles<HardwareTiles>};
const Int8Kernels kEmulatedAmxInt8Kernels{.name = "amx-emulated",
                                          .direct_rows = kInt8DirectRows,
                                          .quantize = &quantize_tiles,
                                          .linear = &linear_int8_tiles<EmulatedTiles>};

}  // namespace kvasir::backend::cpu
