// UTF-8 decoding and encoding of untrusted bytes. A malformed sequence becomes one U+FFFD per
// maximal subpart (Unicode 15, §3.9, Table 3-8), as WHATWG decoders do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvasir {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct DecodedChar {
  char32_t code_point = kReplacementCharacter;
  std::size_t n_bytes = 0;  // consumed; 0 only for empty input
  bool valid = false;       // false: code_point is U+FFFD for n_bytes bytes of a maximal subpart
  bool truncated = false;   // the input ended inside a sequence that more bytes could complete
};

DecodedChar decode_utf8(std::string_view bytes) noexcept;  // first character of bytes
void append_utf8(std::string& out, char32_t code_point);   // surrogates and > U+10FFFF → U+FFFD
std::string repair_utf8(std::string_view bytes);           // malformed parts → U+FFFD
bool is_valid_utf8(std::string_view bytes) noexcept;

}  // namespace kvasir
