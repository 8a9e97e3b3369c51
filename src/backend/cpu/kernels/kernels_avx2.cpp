#define KVASIR_ISA_NAME "avx2"
#include "backend/cpu/kernels/vec_avx2.h"
// The lanes come first.
#include "backend/cpu/kernels/kernels.inc.h"

namespace kvasir::backend::cpu {
const KernelTable kAvx2Kernels = kTable;
}  // namespace kvasir::backend::cpu
