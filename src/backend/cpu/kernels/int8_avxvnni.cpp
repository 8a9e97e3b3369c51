#define KVASIR_ISA_NAME "avx2-vnni"
#include "backend/cpu/kernels/int8_kernels.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/int8_dots_avxvnni.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/int8_quantize.inc.h"
#include "backend/cpu/kernels/linear_int8.inc.h"
#include "backend/cpu/kernels/math.inc.h"
#include "backend/cpu/kernels/grid.inc.h"
#include "backend/cpu/kernels/linear_grid.inc.h"
// clang-format on

namespace kvasir::backend::cpu {
const Int8Kernels kAvxVnniInt8Kernels = kInt8Table;
const Int8Kernels kAvxVnniGridKernels = grid_table(~0u, 16);
}  // namespace kvasir::backend::cpu
