// Result<T>: a value or an Error; the API is a subset of std::expected. Everything that can fail in
// a correct program returns one; bugs are KVASIR_CHECKs (check.h). Values only, no thread rule.
// nvcc-compatible C++20.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace kvasir {

enum class Errc : std::uint8_t {
  invalid_argument,  // the caller's input is wrong; `what` names the field or place
  not_found,
  unsupported,  // well formed, but not something we can do
  capacity,     // out of blocks, memory or budget; may succeed later
  io,
  device,
  cancelled
};

struct Error {
  Errc code = Errc::invalid_argument;
  std::string what;
  // For programs: a stable name of an API ("context_over_budget"), a literal; empty: none.
  std::string_view id = {};
};

inline Error invalid(std::string what) { return {Errc::invalid_argument, std::move(what)}; }
inline Error not_found(std::string what) { return {Errc::not_found, std::move(what)}; }
inline Error unsupported(std::string what) { return {Errc::unsupported, std::move(what)}; }
inline Error io_error(std::string what) { return {Errc::io, std::move(what)}; }

struct Unit {};

template <class T = Unit>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  Result() requires std::is_same_v<T, Unit> : state_(std::in_place_index<0>) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  bool has_value() const noexcept { return state_.index() == 0; }

  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

  T value_or(T other) && { return has_value() ? std::get<0>(std::move(state_)) : std::move(other); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<Unit>;

#define KVASIR_CAT_IMPL(a, b) a##b
#define KVASIR_CAT(a, b) KVASIR_CAT_IMPL(a, b)
#define KVASIR_TRY_IMPL(tmp, decl, expr)   \
  auto tmp = (expr);                       \
  if (!tmp) return std::move(tmp).error(); \
  decl = *std::move(tmp)
// KVASIR_TRY(auto x, f()): x = *f(), or return its error. One a line.
#define KVASIR_TRY(decl, expr) KVASIR_TRY_IMPL(KVASIR_CAT(kvasir_try_, __LINE__), decl, expr)
// KVASIR_TRY_DO(f()): return f()'s error, drop its value.
#define KVASIR_TRY_DO(expr) \
  if (auto kvasir_status = (expr); !kvasir_status) return std::move(kvasir_status).error()

}  // namespace kvasir
