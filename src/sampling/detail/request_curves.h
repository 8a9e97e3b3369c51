// The request's hlg and curve objects (SAMP-13…15): reading one layer, and merging the layers.
// Private to sampling/.
#pragma once

#include <span>

#include "contract/sampling.h"
#include "sampling/detail/field_reader.h"
#include "sampling/request_sampling.h"

namespace kvasir::sampling::detail {

inline constexpr const char* kHlgAndCurve = "hlg and curve cannot be combined";

// Both objects of a body into its layer. Errors go to `in`: types, bounds, a curve that is not
// monotone, and both objects in one body, unless hlg says it is not enabled.
void read_curves(FieldReader& in, PartialSampling& out);

// At most one of out.hlg and out.curve is set.
void merge_curves(std::span<const PartialSampling> layers, SamplingOptions& out);

}  // namespace kvasir::sampling::detail
