// The GPT-2 byte alphabet: every byte as one printable character, so that vocabularies of bytes are
// text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir::text::tok {

// Byte → its character, as UTF-8 of one or two bytes.
struct ByteChar {
  char utf8[2];
  std::uint8_t n_bytes;
};
const std::array<ByteChar, 256>& byte_chars() noexcept;

void append_byte_level(std::string& out, std::string_view bytes);  // bytes → alphabet
// Alphabet → bytes, appended to out. A piece with a foreign character is no byte-level text:
// appended as it is.
void append_from_byte_level(std::string& out, std::string_view piece);

}  // namespace kvasir::text::tok
