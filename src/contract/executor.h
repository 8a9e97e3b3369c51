// Executor: one ragged forward. A step is a flat list of tokens; rows, their positions and their KV
// are given, an output row of each wanted token comes back: its logits or, of an embedding model,
// its hidden state. Knows no requests, scheduling or sampling. Called from the engine's thread
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "contract/kv_list.h"
#include "tensor/kv_views.h"

namespace kvasir {

struct StepBatch {
  std::span<const TokenId> tokens;           // [n_tokens], rows one after another
  std::span<const std::uint32_t> positions;  // [n_tokens] absolute
  KvViews kv;
  std::span<const std::uint32_t>
      wanted;  // ascending indices into tokens whose output rows are wanted (EXE-36)
};

// What an output row is: scores to sample from, or a hidden state to make an embedding of. It
// decides the method of requests (EXE-41).
enum class OutputKind : std::uint8_t { logits, hidden };

struct LogitsView {  // host memory, valid until the next forward
  const float* data = nullptr;
  std::size_t n_rows = 0;  // = wanted.size()
  std::size_t vocab = 0;   // columns: output_width()
  std::span<const float> row(std::size_t i) const noexcept { return {data + i * vocab, vocab}; }
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const KvList& kv_list() const noexcept = 0;
  virtual std::uint32_t vocab_size() const noexcept = 0;
  virtual std::uint32_t max_positions() const noexcept = 0;  // tokens a row may have at most
  virtual std::uint32_t max_step_tokens()
      const noexcept = 0;  // tokens a step may have at most (scratch is sized by it)
  virtual OutputKind output() const noexcept { return OutputKind::logits; }
  virtual std::uint32_t output_width() const noexcept { return vocab_size(); }
  // Bidirectional: a row is fed in one step from position 0 (SCH-12), and leaves no state.
  virtual bool takes_whole_rows() const noexcept { return false; }
  virtual Result<LogitsView> forward(const StepBatch& batch) = 0;

  // Recurrent layers cannot be trimmed; they step back by a replay (KV-39, KV-54). For the batch
  // that was fed last: leaves at `to` of every recurrent view the state after the first keep[i]
  // tokens of row i, from the state at `from`, by the arithmetic of the forward itself. Rows that
  // keep all or nothing are left alone; the others were tentative.
  virtual void replay(const StepBatch& /*batch*/,
                      std::span<const std::uint32_t> /*keep*/) noexcept {}
  // Tokens that the tentative rows of a step may have together.
  virtual std::uint32_t max_tentative_tokens() const noexcept { return max_step_tokens(); }
};

}  // namespace kvasir
