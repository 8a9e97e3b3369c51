#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "json/json.h"

namespace kvasir::json {
namespace {

namespace dom = simdjson::dom;

Value convert(const dom::element& element) {
  switch (element.type()) {
    case dom::element_type::ARRAY: {
      Array out;
      for (const dom::element child : dom::array(element)) out.push_back(convert(child));
      return out;
    }
    case dom::element_type::OBJECT: {
      Object out;
      for (const auto [key, child] : dom::object(element))
        out.push_back(std::string(key), convert(child));
      return out;
    }
    case dom::element_type::INT64:
      return std::int64_t(element);
    case dom::element_type::UINT64:
      return std::uint64_t(element);
    case dom::element_type::DOUBLE:
      return double(element);
    case dom::element_type::STRING:
      return std::string_view(element);
    case dom::element_type::BOOL:
      return bool(element);
    case dom::element_type::NULL_VALUE:
      break;
  }
  return {};
}

bool fits_64_bits(std::string_view digits) {
  const char* end = digits.data() + digits.size();
  std::int64_t i = 0;
  std::uint64_t u = 0;
  return std::from_chars(digits.data(), end, i).ec == std::errc() ||
         std::from_chars(digits.data(), end, u).ec == std::errc();
}

// simdjson knows no integers beyond 64 bits, which real files have (model_max_length of 1e30
// written out): as reals they are numbers like others.
std::string with_long_integers_as_reals(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (in_string || (c != '-' && (c < '0' || c > '9'))) {
      if (c == '"') in_string = !in_string;
      const std::size_t n = in_string && c == '\\' ? 2 : 1;
      out += text.substr(at, n);
      at += n;
      continue;
    }
    const std::size_t end = std::min(text.find_first_not_of("0123456789+-.eE", at), text.size());
    const std::string_view number = text.substr(at, end - at);
    out += number;
    const bool is_integer = number.find_first_of(".eE") == std::string_view::npos;
    if (is_integer && number.size() > 18 && !fits_64_bits(number)) out += ".0";
    at = end;
  }
  return out;
}

}  // namespace

Result<Value> parse(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return invalid("JSON of " + std::to_string(text.size()) + " bytes, at most " +
                   std::to_string(limits.max_bytes));
  }
  dom::parser parser;
  if (const auto error = parser.allocate(std::max<std::size_t>(text.size(), 1), limits.max_depth)) {
    return Error{Errc::capacity, std::string("JSON: ") + simdjson::error_message(error)};
  }
  dom::element root;
  auto error = parser.parse(text.data(), text.size(), true).get(root);
  if (error == simdjson::NUMBER_ERROR)
    error = parser.parse(with_long_integers_as_reals(text)).get(root);
  if (error) {
    return invalid(std::string("JSON: ") + simdjson::error_message(error));
  }
  return convert(root);
}

}  // namespace kvasir::json
