// ContextLimit: whether a request can ever run here (FIT-20, FIT-21), asked at submission and never
// later. A plain value: any thread. Lengths are prompt + max_tokens, as the texts count them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace kvasir::engine {

struct Refusal {
  std::string_view code;  // context_length_exceeded, context_over_budget
  std::string message;    // exact, for the API
};

class ContextLimit {
 public:
  // context: tokens that one row can hold. kv_bytes(n): budget that n tokens need; must be pure.
  ContextLimit(std::uint64_t context,
               std::uint64_t budget_bytes,
               std::function<std::uint64_t(std::uint64_t)> kv_bytes);
  std::uint64_t context() const noexcept { return context_; }

  // max_tokens as given, or the default lowered to what fits, down to 1.
  std::uint64_t resolve_max_tokens(std::uint64_t n_prompt,
                                   std::optional<std::uint32_t> given,
                                   std::uint32_t fallback) const noexcept;
  std::optional<Refusal> refuse(std::uint64_t n_prompt, std::uint64_t max_tokens) const;

 private:
  std::uint64_t context_;
  std::uint64_t budget_bytes_;
  std::function<std::uint64_t(std::uint64_t)> kv_bytes_;
};

}  // namespace kvasir::engine
