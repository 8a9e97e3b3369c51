// The op table of a team.
#pragma once

#include "ops/op_table.h"

namespace kvasir::backend::cuda {

extern const ops::OpTable kTeamOps;

}  // namespace kvasir::backend::cuda
