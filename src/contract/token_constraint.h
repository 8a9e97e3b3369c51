// TokenConstraint: which tokens a row may take next: a grammar, a reasoning budget, both (SAMP-59).
// Asked by the engine's step, before sampling; advanced by every emitted token; restored when a
// step is undone. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;  // at the same place
  // Bit t % 32 of word t / 32: token t is allowed. Empty: everything is. Valid until the next call.
  virtual Result<std::span<const std::uint32_t>> mask() = 0;
  // Tokens that must come next whatever the logits (SAMP-56); empty: none. Valid until the next
  // call.
  virtual std::span<const TokenId> forced() = 0;
  // The token was emitted (EOS is not). True: nothing can follow, the row ends with `stop`.
  virtual Result<bool> advance(TokenId token) = 0;
  // Marks are tokens advanced so far; restore forgets those after the mark.
  virtual std::size_t snapshot() const noexcept = 0;
  virtual void restore(std::size_t mark) noexcept = 0;
};

}  // namespace kvasir
