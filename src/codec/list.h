// All weight codecs: the only place. Tests, packing and `kvasir inspect` iterate it.
#pragma once

#include "base/type_list.h"
#include "codec/affine.h"
#include "codec/dense.h"
#include "codec/q2_k.h"
#include "codec/q3_k.h"
#include "codec/q4_0.h"
#include "codec/q4_1.h"
#include "codec/q4_k.h"
#include "codec/q5_0.h"
#include "codec/q5_1.h"
#include "codec/q5_k.h"
#include "codec/q6_k.h"
#include "codec/q8_0.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

using WeightCodecs = TypeList<F32,
                              F16,
                              BF16,
                              Q4_0,
                              Q4_1,
                              Q5_0,
                              Q5_1,
                              Q8_0,
                              Q2_K,
                              Q3_K,
                              Q4_K,
                              Q5_K,
                              Q6_K,
                              Affine<4, 32>,
                              Affine<4, 64>,
                              Affine<4, 128>,
                              Affine<8, 32>,
                              Affine<8, 64>,
                              Affine<8, 128>>;

}  // namespace kvasir::codec
