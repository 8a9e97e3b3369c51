// kv_append: writes this step's keys and values into the rows' blocks, rounded to the view's type,
// or encoded for rows in encoded form. kv_convert: turns positions of a row from exact to encoded.
// attention: causal (bottom-right at any offset, KV-30/31) attention of this step's queries over
// their rows' KV, appended positions included; an encoder's looks both ways. Keys go in tiles of 64
// aligned to absolute position, merged ascending with an online softmax: a query's bits depend on
// its row alone, never on block size, chunk, batch or threads.
#pragma once

#include "tensor/kv_view.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct KvAppendArgs {
  ConstMatView k;  // [n_tokens, n_kv_heads · head_dim]
  ConstMatView v;  // same
  KvLayerView kv;  // rows name their tokens by first_token and n_new
};

struct AttentionArgs {
  ConstMatView
      q;  // [n_tokens, n_heads · head_dim]; head h reads kv head h / (n_heads / n_kv_heads)
  KvLayerView kv;
  std::uint32_t n_heads = 0;     // a multiple of kv.n_kv_heads
  float scale = 1.0f;            // on q·k
  float softcap = 0.0f;          // > 0: s = cap · tanh(s / cap)
  const float* sinks = nullptr;  // [n_heads]: one more logit in the denominator, or null
  // Every key of the row is visible to each of its queries, of a window those with |q - j| < window
  // (MOD-38). Rows are whole in the step and in exact form.
  bool both_ways = false;
  MatView out;  // [n_tokens, n_heads · head_dim]
};

// Encodes positions [begin, end) of one row, exact at `from`, into the encoded blocks `to`: what an
// append in encoded form would have written (KV-24, KV-28). kv.rows is not read.
struct KvConvertArgs {
  KvLayerView kv;
  const BlockId* from = nullptr;  // from[p / block_tokens] holds position p
  const BlockId* to = nullptr;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

}  // namespace kvasir::ops
