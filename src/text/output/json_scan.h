// Where a JSON value ends, byte by byte, and slices of a JSON text that json::parse accepted. Keeps
// the writer's own spelling of numbers and strings, which a parsed value would lose.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir::text::out {

inline constexpr std::size_t kMaxJsonDepth = 100;

// Follows brackets and strings of one object or array; what stands between them is json::parse's
// business.
class JsonScanner {
 public:
  enum class State { open, closed, bad };
  State push(char c);
  State push_marker();  // fits inside a string only

 private:
  std::string brackets_;  // the closing ones still wanted
  bool in_string_ = false;
  bool is_escaped_ = false;
};

using JsonMembers = std::vector<std::pair<std::string, std::string_view>>;

// Of a valid object: its names, decoded, and the text of the values.
JsonMembers json_members(std::string_view object);
// Of a valid array: the text of its items.
std::vector<std::string_view> json_items(std::string_view array);
// Without the white space between tokens.
std::string json_compact(std::string_view valid);
bool is_valid_json(std::string_view text);

constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
std::string_view trim(std::string_view text);

}  // namespace kvasir::text::out
