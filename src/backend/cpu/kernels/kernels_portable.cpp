#define KVASIR_ISA_NAME "portable"
#include "backend/cpu/kernels/vec_portable.h"
// The lanes come first.
#include "backend/cpu/kernels/kernels.inc.h"

namespace kvasir::backend::cpu {
const KernelTable kPortableKernels = kTable;
}  // namespace kvasir::backend::cpu
