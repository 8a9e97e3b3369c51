#include "base/detail/x.h"
#include <immintrin.h>
#include <cuda_runtime.h>
