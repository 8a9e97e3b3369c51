// Draft kinds as the engine sees them (SPEC-1…5): a provider lives as long as the server, a source
// as long as a request. A source only guesses: the engine verifies, so a wrong guess costs time and
// never changes output. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir {

enum class DraftPriming : std::uint8_t {
  tail,  // fed all prompt tokens but the last
  full   // fed every prompt position with the target's hidden rows
};

struct DraftAsk {
  std::span<const TokenId> feed;  // tokens the drafter has not seen (SPEC-3)
  std::uint64_t position = 0;     // absolute position of the first draft
  std::uint32_t n_max = 0;        // at most this many
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Appends up to ask.n_max tokens to drafts (empty on entry). What is there afterwards is what is
  // verified; none makes a plain step. An error drops the source, the row goes on plainly
  // (SPEC-32).
  virtual Status propose(const DraftAsk& ask, std::vector<TokenId>& drafts) = 0;
  // Priming first, then the tokens that each round kept: together the row's committed tokens,
  // without gaps; whatever was proposed beyond them is dropped. hidden: the target's tapped rows of
  // these tokens [n_tokens, width], empty for kinds without taps.
  virtual Status accept(std::span<const TokenId> committed, std::span<const float> hidden) = 0;
  virtual void forget() noexcept = 0;
};

class DraftProvider {
 public:
  virtual ~DraftProvider() = default;
  virtual std::string_view kind() const noexcept = 0;
  virtual std::size_t weight_bytes() const noexcept = 0;
  virtual std::uint32_t max_drafts() const noexcept = 0;
  virtual DraftPriming priming() const noexcept = 0;
  virtual std::span<const std::uint32_t> tap_layers() const noexcept = 0;
  virtual bool primes_from_prefix() const noexcept = 0;
  virtual Result<std::unique_ptr<DraftSource>> open() = 0;
};

}  // namespace kvasir
