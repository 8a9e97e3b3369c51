// All KV codecs: the only place. Dispatch by kind goes through the table that kv_codec.cpp makes
// from it.
#pragma once

#include "base/type_list.h"
#include "codec/kv/affine.h"
#include "codec/kv/exact.h"
#include "codec/kv/turbo_keys.h"
#include "codec/kv/turbo_values.h"

namespace kvasir::codec {

using KvCodecs = TypeList<KvExact, KvAffine, KvTurboKeys, KvTurboValues>;

}  // namespace kvasir::codec
