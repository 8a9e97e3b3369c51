// Test helper: attention over a KV layer (ops/testing.h) on this backend's devices.
#pragma once

#include "backend/cpu/testing/weights.h"
#include "ops/testing.h"

namespace kvasir::backend::cpu::testing {

using ops::testing::Activations;
using ops::testing::attend_all;
using ops::testing::AttentionCase;
using ops::testing::draw;
using ops::testing::KvLayer;
using ops::testing::total_tokens;

}  // namespace kvasir::backend::cpu::testing
