// TypeList<A, B, …>: the explicit lists that tests, benchmarks and dispatch iterate.
#pragma once

#include <cstddef>
#include <type_traits>

namespace kvasir {

template <class... Ts>
struct TypeList {
  static constexpr std::size_t kSize = sizeof...(Ts);
  // Its place in the list, or kSize.
  template <class T>
  static constexpr std::size_t index_of() {
    std::size_t index = 0;
    static_cast<void>((... || (std::is_same_v<T, Ts> ? true : (++index, false))));
    return index;
  }
  // f.template operator()<T>() for each type, in order.
  template <class F>
  static constexpr void for_each(F&& f) {
    (f.template operator()<Ts>(), ...);
  }
};

}  // namespace kvasir
