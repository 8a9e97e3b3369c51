#include <simdjson.h>

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
  if (const auto error = parser.parse(text.data(), text.size(), true).get(root)) {
    return invalid(std::string("JSON: ") + simdjson::error_message(error));
  }
  return convert(root);
}

}  // namespace kvasir::json
