#include "engine/context_limit.h"

#include <algorithm>
#include <utility>

#include "base/byte_size.h"

namespace kvasir::engine {

ContextLimit::ContextLimit(std::uint64_t context,
                           std::uint64_t budget_bytes,
                           std::function<std::uint64_t(std::uint64_t)> kv_bytes)
    : context_(context), budget_bytes_(budget_bytes), kv_bytes_(std::move(kv_bytes)) {}

std::uint64_t ContextLimit::resolve_max_tokens(std::uint64_t n_prompt,
                                               std::optional<std::uint32_t> given,
                                               std::uint32_t fallback) const noexcept {
  if (given) return *given;
  const std::uint64_t room = n_prompt < context_ ? context_ - n_prompt : 0;
  return std::max<std::uint64_t>(1, std::min<std::uint64_t>(fallback, room));
}

std::optional<Refusal> ContextLimit::refuse(std::uint64_t n_prompt,
                                            std::uint64_t max_tokens) const {
  const std::string prompt = "prompt of " + std::to_string(n_prompt) + " tokens";
  const std::string limit = std::to_string(context_);
  if (n_prompt > context_)
    return Refusal{"context_length_exceeded", prompt + " exceeds the context of " + limit};
  const std::uint64_t needed = n_prompt + max_tokens;
  if (needed <= context_) return std::nullopt;
  return Refusal{"context_over_budget",
                 prompt + " + max_tokens " + std::to_string(max_tokens) + " needs a context of " +
                     std::to_string(needed) + "; this server can hold " + limit + " (" +
                     format_bytes(kv_bytes_(needed)) + " of KV in a budget of " +
                     format_bytes(budget_bytes_) +
                     "). Lower max_tokens or shorten the prompt; see /stats"};
}

}  // namespace kvasir::engine
