#define KVASIR_ISA_NAME "avx512"
#include "backend/cpu/kernels/vec_avx512.h"
// The lanes come first.
#include "backend/cpu/kernels/kernels.inc.h"

namespace kvasir::backend::cpu {
const KernelTable kAvx512Kernels = kTable;
}  // namespace kvasir::backend::cpu
