// All weight codecs: the only place. Tests, packing and `kvasir inspect` iterate it.
#pragma once

#include "base/type_list.h"
#include "codec/dense.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

using WeightCodecs = TypeList<F32, F16, BF16>;

}  // namespace kvasir::codec
