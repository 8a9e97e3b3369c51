#include "base/utf8.h"

namespace kvasir {
namespace {

struct Lead {
  std::size_t n_bytes;   // of the whole sequence; 0 = not a lead byte
  unsigned char lo, hi;  // allowed range of the second byte
  char32_t bits;
};

Lead classify(unsigned char b) noexcept {
  if (b < 0x80) return {1, 0, 0, b};
  if (b < 0xC2 || b > 0xF4) return {0, 0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF, b & 0x1Fu};
  if (b < 0xF0) {
    const auto lo = static_cast<unsigned char>(b == 0xE0 ? 0xA0 : 0x80);
    const auto hi = static_cast<unsigned char>(b == 0xED ? 0x9F : 0xBF);
    return {3, lo, hi, b & 0x0Fu};
  }
  const auto lo = static_cast<unsigned char>(b == 0xF0 ? 0x90 : 0x80);
  const auto hi = static_cast<unsigned char>(b == 0xF4 ? 0x8F : 0xBF);
  return {4, lo, hi, b & 0x07u};
}

}  // namespace

DecodedChar decode_utf8(std::string_view bytes) noexcept {
  if (bytes.empty()) return {};
  Lead lead = classify(static_cast<unsigned char>(bytes[0]));
  if (lead.n_bytes == 0) return {kReplacementCharacter, 1, false, false};
  char32_t cp = lead.bits;
  for (std::size_t i = 1; i < lead.n_bytes; ++i) {
    if (i >= bytes.size()) return {kReplacementCharacter, i, false, true};
    const auto b = static_cast<unsigned char>(bytes[i]);
    const unsigned char lo = i == 1 ? lead.lo : 0x80;
    const unsigned char hi = i == 1 ? lead.hi : 0xBF;
    if (b < lo || b > hi) return {kReplacementCharacter, i, false, false};
    cp = (cp << 6) | (b & 0x3Fu);
  }
  return {cp, lead.n_bytes, true, false};
}

void append_utf8(std::string& out, char32_t cp) {
  if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) cp = kReplacementCharacter;
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xC0 | (cp >> 6));
    put(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    put(0xE0 | (cp >> 12));
    put(0x80 | ((cp >> 6) & 0x3F));
    put(0x80 | (cp & 0x3F));
  } else {
    put(0xF0 | (cp >> 18));
    put(0x80 | ((cp >> 12) & 0x3F));
    put(0x80 | ((cp >> 6) & 0x3F));
    put(0x80 | (cp & 0x3F));
  }
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const DecodedChar c = decode_utf8(bytes);
    append_utf8(out, c.code_point);
    bytes.remove_prefix(c.n_bytes);
  }
  return out;
}

bool is_valid_utf8(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const DecodedChar c = decode_utf8(bytes);
    if (!c.valid) return false;
    bytes.remove_prefix(c.n_bytes);
  }
  return true;
}

}  // namespace kvasir
