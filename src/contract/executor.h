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
#include "tensor/pick_row.h"

namespace kvasir {

struct StepBatch {
  // [n_tokens], rows one after another; picked_from(i): what is picked for wanted row i of the
  // batch launched before, which nobody need have read yet (EXE-10).
  std::span<const TokenId> tokens;
  std::span<const std::uint32_t> positions;  // [n_tokens] absolute
  KvViews kv;
  std::span<const std::uint32_t>
      wanted;  // ascending indices into tokens whose output rows are wanted (EXE-36)
  // [n wanted]: rows of another kind than `none` leave a token in the place of their scores. Empty:
  // the scores of all rows are wanted.
  std::span<const PickRow> picks = {};
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

struct StepOutput {
  LogitsView logits;                // what rows with a pick hold is left open
  std::span<const TokenId> picked;  // [n wanted] or empty; until the next but one launch
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

  // A forward in two. launch() has read the batch when it returns; what it writes is there for a
  // batch launched after it, and for the host from collect() on, which is of the oldest batch not
  // collected. One more may be launched before that (EXE-10) if no row of the older one wants its
  // scores. Errors: of launch, that nothing was done; of collect, Errc::device: what the batches on
  // their way have written is lost, and the later one is to be collected too.
  virtual Status launch(const StepBatch& batch) = 0;
  virtual Result<StepOutput> collect() = 0;
  // Whether launch() returns before the work is done: there is something to gain by running ahead.
  virtual bool runs_behind() const noexcept { return false; }
  virtual bool picks_tokens() const noexcept { return false; }  // StepBatch::picks may be given
  // The scores of all wanted rows, of a batch without picks. Nothing else is on its way.
  Result<LogitsView> forward(const StepBatch& batch) {
    KVASIR_TRY_DO(launch(batch));
    KVASIR_TRY(const StepOutput out, collect());
    return out.logits;
  }

  // Recurrent layers cannot be trimmed; they step back by a replay (KV-39, KV-54). For the batch
  // that was fed last: leaves at `to` of every recurrent view the state after the first keep[i]
  // tokens of row i, from the state at `from`, by the arithmetic of the forward itself. Rows that
  // keep all or nothing are left alone; the others were tentative.
  virtual void replay(const StepBatch& /*batch*/,
                      std::span<const std::uint32_t> /*keep*/) noexcept {}
  // Tokens that the tentative rows of a step may have together.
  virtual std::uint32_t max_tentative_tokens() const noexcept { return max_step_tokens(); }
  // Rows of output that a step may ask for.
  virtual std::uint32_t max_wanted() const noexcept { return max_step_tokens(); }
};

}  // namespace kvasir
