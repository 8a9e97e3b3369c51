#define KVASIR_ISA_NAME "avx2"
#include "backend/cpu/kernels/int8_kernels.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/int8_dots_avx2.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/int8_quantize.inc.h"
#include "backend/cpu/kernels/linear_int8.inc.h"
#include "backend/cpu/kernels/math.inc.h"
#include "backend/cpu/kernels/grid.inc.h"
#include "backend/cpu/kernels/linear_grid.inc.h"
// clang-format on

namespace kvasir::backend::cpu {
const Int8Kernels kAvx2Int8Kernels = kInt8Table;
const Int8Kernels kAvx2GridKernels = grid_table(3, 2);
}  // namespace kvasir::backend::cpu
