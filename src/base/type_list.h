// TypeList<A, B, …>: the explicit lists that tests, benchmarks and dispatch iterate.
#pragma once

#include <cstddef>

namespace kvasir {

template <class... Ts>
struct TypeList {
  static constexpr std::size_t kSize = sizeof...(Ts);
  // f.template operator()<T>() for each type, in order.
  template <class F>
  static constexpr void for_each(F&& f) {
    (f.template operator()<Ts>(), ...);
  }
};

}  // namespace kvasir
