// DraftAcceptance: the walk over a verify window (SPEC-12). The caller samples one target token,
// updates history and constraint, calls accept, and stops as soon as done(). With no drafts the
// first token is the bonus: a plain step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kvasir {

class DraftAcceptance {
 public:
  // Starts a walk; buffers are reused. The spans must outlive it. remaining: tokens the row may
  // still emit.
  void begin(std::span<const TokenId> drafts,
             std::uint64_t remaining,
             std::span<const TokenId> eos_ids) {
    drafts_ = drafts;
    eos_ids_ = eos_ids;
    remaining_ = remaining;
    position_ = accepted_ = 0;
    correction_.reset();
    emitted_.clear();
    saw_eos_ = grammar_done_ = done_ = false;
  }

  void accept(TokenId token, bool grammar_done) {
    const bool is_match = position_ < drafts_.size() && token == drafts_[position_];
    const bool is_eos = std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
    ++position_;
    if (is_match) ++accepted_;
    if (is_match && is_eos) {
      saw_eos_ = done_ = true;
      return;
    }
    if (!is_eos) emitted_.push_back(token);
    grammar_done_ = grammar_done;
    if (is_match) {
      done_ = grammar_done || emitted_.size() >= remaining_;
      return;
    }
    correction_ = token;
    saw_eos_ = is_eos;
    done_ = true;
  }

  std::uint32_t position() const noexcept { return position_; }  // window positions sampled
  std::uint32_t accepted() const noexcept {
    return accepted_;
  }  // drafts to keep, a matched EOS included
  std::optional<TokenId> correction() const noexcept { return correction_; }
  std::span<const TokenId> emitted() const noexcept { return emitted_; }
  bool saw_eos() const noexcept { return saw_eos_; }
  bool grammar_done() const noexcept { return grammar_done_; }
  bool done() const noexcept { return done_; }

 private:
  std::span<const TokenId> drafts_, eos_ids_;
  std::uint64_t remaining_ = 0;
  std::uint32_t position_ = 0, accepted_ = 0;
  std::optional<TokenId> correction_;
  std::vector<TokenId> emitted_;
  bool saw_eos_ = false, grammar_done_ = false, done_ = false;
};

}  // namespace kvasir
