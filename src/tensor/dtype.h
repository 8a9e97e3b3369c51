// Element types of dense tensors, and views: what kernels and graphs pass around. A view owns
// nothing; data may live in any memory kind of the device that made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvasir {

enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  f64,
  i64,
  i32,
  i16,
  i8,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3
};

constexpr std::size_t size_of(DType type) noexcept {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
    case DType::f8_e4m3:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) noexcept {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "f64", "i64",  "i32",    "i16",
                                         "i8",  "u32", "u16",  "u8",  "bool", "f8_e4m3"};
  return kNames[static_cast<int>(type)];
}

}  // namespace kvasir
