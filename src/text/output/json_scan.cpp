#include "text/output/json_scan.h"

#include <algorithm>

#include "json/json.h"

namespace kvasir::text::out {

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

JsonScanner::State JsonScanner::push(char c) {
  if (in_string_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (c == '\\') {
      is_escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return State::open;
  }
  if (brackets_.empty() && c != '{' && c != '[') return State::bad;
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') {
    if (brackets_.size() == kMaxJsonDepth) return State::bad;
    brackets_ += c == '{' ? '}' : ']';
  }
  if (c == '}' || c == ']') {
    if (brackets_.back() != c) return State::bad;
    brackets_.pop_back();
    if (brackets_.empty()) return State::closed;
  }
  return State::open;
}

JsonScanner::State JsonScanner::push_marker() {
  is_escaped_ = false;
  return in_string_ ? State::open : State::bad;
}

namespace {

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// One past the string that begins at `at`.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// One past the value that begins at `at`.
std::size_t value_end(std::string_view text, std::size_t at) {
  if (at < text.size() && text[at] == '"') return string_end(text, at);
  if (at < text.size() && (text[at] == '{' || text[at] == '[')) {
    JsonScanner scanner;
    while (at < text.size() && scanner.push(text[at++]) == JsonScanner::State::open) continue;
    return at;
  }
  while (at < text.size() && !is_space(text[at]) && text[at] != ',' && text[at] != '}' &&
         text[at] != ']') {
    ++at;
  }
  return at;
}

}  // namespace

JsonMembers json_members(std::string_view object) {
  JsonMembers out;
  std::size_t at = skip_space(object, object.find('{') + 1);
  while (at < object.size() && object[at] == '"') {
    const std::size_t key_end = string_end(object, at);
    const auto key = json::parse(object.substr(at, key_end - at));
    const std::size_t colon = skip_space(object, key_end);
    const std::size_t begin = skip_space(object, colon + 1);
    const std::size_t end = value_end(object, begin);
    const std::string* name = key ? key->as_string() : nullptr;
    out.emplace_back(name != nullptr ? *name : std::string(), object.substr(begin, end - begin));
    at = skip_space(object, skip_space(object, end) + 1);  // past the comma or the brace
  }
  return out;
}

std::vector<std::string_view> json_items(std::string_view array) {
  std::vector<std::string_view> out;
  std::size_t at = skip_space(array, array.find('[') + 1);
  while (at < array.size() && array[at] != ']') {
    const std::size_t end = value_end(array, at);
    out.push_back(array.substr(at, end - at));
    at = skip_space(array, skip_space(array, end) + 1);
  }
  return out;
}

std::string json_compact(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  for (std::size_t at = 0; at < valid.size();) {
    if (valid[at] == '"') {
      const std::size_t end = string_end(valid, at);
      out += valid.substr(at, end - at);
      at = end;
    } else {
      if (!is_space(valid[at])) out += valid[at];
      ++at;
    }
  }
  return out;
}

bool is_valid_json(std::string_view text) {
  return json::parse(text, {.max_depth = kMaxJsonDepth}).has_value();
}

}  // namespace kvasir::text::out
