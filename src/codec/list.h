// All weight codecs: the only place. Tests, packing and `kvasir inspect` iterate it.
#pragma once

#include "base/type_list.h"
#include "codec/affine.h"
#include "codec/columns4.h"
#include "codec/dense.h"
#include "codec/f8_e4m3.h"
#include "codec/iq1_m.h"
#include "codec/iq1_s.h"
#include "codec/iq2_s.h"
#include "codec/iq2_xs.h"
#include "codec/iq2_xxs.h"
#include "codec/iq3_s.h"
#include "codec/iq3_xxs.h"
#include "codec/iq4_nl.h"
#include "codec/iq4_xs.h"
#include "codec/mx.h"
#include "codec/mxfp4.h"
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
#include "codec/q8_k.h"
#include "codec/tq1_0.h"
#include "codec/tq2_0.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

using WeightCodecs = TypeList<F32,
                              F16,
                              BF16,
                              F8_E4M3,
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
                              Q8_K,
                              IQ1_S,
                              IQ1_M,
                              IQ2_XXS,
                              IQ2_XS,
                              IQ2_S,
                              IQ3_XXS,
                              IQ3_S,
                              IQ4_NL,
                              IQ4_XS,
                              TQ1_0,
                              TQ2_0,
                              MXFP4,
                              Mxfp4G32,
                              Mxfp8G32,
                              Nvfp4G16,
                              Affine<2, 32>,
                              Affine<2, 64>,
                              Affine<2, 128>,
                              Affine<3, 32>,
                              Affine<3, 64>,
                              Affine<3, 128>,
                              Affine<4, 32>,
                              Affine<4, 64>,
                              Affine<4, 128>,
                              Affine<5, 32>,
                              Affine<5, 64>,
                              Affine<5, 128>,
                              Affine<6, 32>,
                              Affine<6, 64>,
                              Affine<6, 128>,
                              Affine<8, 32>,
                              Affine<8, 64>,
                              Affine<8, 128>,
                              Columns4<false, 32>,
                              Columns4<false, 64>,
                              Columns4<false, 128>,
                              Columns4<true, 32>,
                              Columns4<true, 64>,
                              Columns4<true, 128>>;

}  // namespace kvasir::codec
