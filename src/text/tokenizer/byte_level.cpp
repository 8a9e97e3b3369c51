#include "text/tokenizer/byte_level.h"

#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

// Printable Latin-1 bytes stand for themselves; the other 68, in order, for U+0100 and up.
constexpr bool stands_for_itself(unsigned b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

constexpr unsigned kAlphabetEnd = 0x100 + 68;

struct Tables {
  std::array<ByteChar, 256> chars{};
  std::array<std::int16_t, kAlphabetEnd> bytes{};  // code point → byte, -1: not in the alphabet
};

constexpr Tables make_tables() {
  Tables t;
  for (auto& b : t.bytes) b = -1;
  unsigned next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const unsigned c = stands_for_itself(b) ? b : next++;
    t.bytes[c] = static_cast<std::int16_t>(b);
    if (c < 0x80) {
      t.chars[b] = {{static_cast<char>(c), 0}, 1};
    } else {
      t.chars[b] = {{static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))}, 2};
    }
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

const std::array<ByteChar, 256>& byte_chars() noexcept { return kTables.chars; }

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char b : bytes) {
    const ByteChar& c = kTables.chars[static_cast<unsigned char>(b)];
    out.append(c.utf8, c.n_bytes);
  }
}

void append_from_byte_level(std::string& out, std::string_view piece) {
  const std::size_t mark = out.size();
  for (std::size_t at = 0; at < piece.size();) {
    const Char c = first_char(piece.substr(at));
    const int byte = c.code_point < kAlphabetEnd ? kTables.bytes[c.code_point] : -1;
    if (byte < 0) {
      out.resize(mark);
      out += piece;
      return;
    }
    out.push_back(static_cast<char>(byte));
    at += c.n_bytes;
  }
}

}  // namespace kvasir::text::tok
