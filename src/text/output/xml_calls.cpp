#include "text/output/xml_calls.h"

#include <array>
#include <optional>
#include <utility>

#include "base/utf8.h"

namespace kvasir::text::out {
namespace {

std::string apply(std::string (*style)(std::string_view), std::string text) {
  return style != nullptr ? style(text) : text;
}

// "lt", "#10", "#x41" → the character; false: no such entity.
bool append_entity(std::string& out, std::string_view name) {
  static constexpr std::array kNamed{std::pair{"lt", '<'}, std::pair{"gt", '>'},
                                     std::pair{"amp", '&'}, std::pair{"quot", '"'},
                                     std::pair{"apos", '\''}};
  for (const auto& [known, character] : kNamed) {
    if (name != known) continue;
    out += character;
    return true;
  }
  if (!name.starts_with('#')) return false;
  const bool is_hex = name.starts_with("#x") || name.starts_with("#X");
  const std::string_view digits = name.substr(is_hex ? 2 : 1);
  char32_t code = 0;
  if (digits.empty() || digits.size() > 7) return false;
  for (const char c : digits) {
    const std::size_t digit = std::string_view("0123456789abcdef")
                                  .find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
    if (digit >= (is_hex ? 16u : 10u)) return false;
    code = code * (is_hex ? 16 : 10) + static_cast<char32_t>(digit);
  }
  if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  append_utf8(out, code);
  return true;
}

}  // namespace

bool build_tagged_call(const BuildInput& in,
                       const TagStyle& style,
                       std::vector<ParsedCall>& calls) {
  std::string name, key;
  std::optional<Arguments> arguments;
  const auto close = [&] {
    if (arguments) calls.push_back({name, std::move(*arguments).take()});
  };
  for (const Capture& capture : in.captures) {
    if (capture.slot == kNameSlot) {
      close();
      name = trim(apply(style.name, in.spelled(capture)));
      if (!in.tools.has(name)) return false;
      arguments.emplace();
    } else if (capture.slot == kKeySlot) {
      key = trim(apply(style.name, in.spelled(capture)));
    } else if (capture.slot == kValueSlot && arguments) {
      arguments->add(key, in.tools.value_json(name, key, apply(style.value, in.spelled(capture))));
    }
  }
  close();
  return true;
}

std::string unquote(std::string_view attribute) {
  std::string_view text = trim(attribute);
  const bool has_quote = !text.empty() && (text.front() == '"' || text.front() == '\'');
  if (!has_quote) return std::string(text);
  const std::size_t close = text.find(text.front(), 1);
  return std::string(close == std::string_view::npos ? text : text.substr(1, close - 1));
}

std::string without_outer_newlines(std::string_view text) {
  if (text.starts_with("\r\n")) {
    text.remove_prefix(2);
  } else if (text.starts_with('\n')) {
    text.remove_prefix(1);
  }
  if (text.ends_with("\r\n")) {
    text.remove_suffix(2);
  } else if (text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  return std::string(text);
}

std::string decode_xml(std::string_view text) {
  constexpr std::string_view kOpen = "<![CDATA[", kClose = "]]>";
  constexpr std::size_t kMaxEntity = 10;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (text.starts_with(kOpen)) {
      text.remove_prefix(kOpen.size());
      const std::size_t end = text.find(kClose);
      out += text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + kClose.size());
      continue;
    }
    const std::size_t semicolon =
        text.front() == '&' ? text.substr(0, kMaxEntity).find(';') : std::string_view::npos;
    if (semicolon != std::string_view::npos && append_entity(out, text.substr(1, semicolon - 1))) {
      text.remove_prefix(semicolon + 1);
      continue;
    }
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace kvasir::text::out
