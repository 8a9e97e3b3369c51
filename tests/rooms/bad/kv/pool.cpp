#include <cuda_runtime.h>
#include <immintrin.h>

#include "base/detail/x.h"
