// Tiles for many rows; few are multiplied in lanes, by VNNI, which every CPU with tiles has.
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

namespace {

template <class Tiles>
constexpr Int8Kernels kTiles{.name = "amx tiles",
                             .direct_rows = 0,
                             .quantize = &quantize_tiles,
                             .linear = &linear_int8_tiles<Tiles>};

template <class Tiles>
constexpr Int8Kernels with_tiles(const char* name, std::uint32_t fewest) {
  Int8Kernels kernels = kInt8Table;
  kernels.name = name;
  kernels.for_many = &kTiles<Tiles>;
  kernels.fewest_many = fewest;
  return kernels;
}

}  // namespace

// Fewer rows are faster in lanes (16 of Q4_0 by 5 %, of Q8_0 by 40 %).
const Int8Kernels kAmxInt8Kernels = with_tiles<HardwareTiles>("amx", 33);
const Int8Kernels kEmulatedAmxInt8Kernels = with_tiles<EmulatedTiles>("amx-emulated", 1);

}  // namespace kvasir::backend::cpu
