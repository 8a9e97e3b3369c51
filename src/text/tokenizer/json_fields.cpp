#include "text/tokenizer/json_fields.h"

#include "text/tokenizer/unicode.h"

namespace kvasir::text::tok {
namespace {

constexpr int kMaxSequenceDepth = 16;
constexpr int kMaxSteps = 256;

using StepFn = std::function<Status(const json::Value&, const std::string&)>;

// No text at all matches between all characters.
Result<Regex> literal_pattern(const std::string& text) {
  return text.empty() ? Regex::compile("") : Regex::literal(text);
}

Status walk(const json::Value& spec,
            std::string_view list_name,
            const StepFn& step,
            int depth,
            int& n_steps) {
  if (spec.is_null()) return {};
  const json::Value* type = spec.find("type");
  if (type == nullptr || !type->is_string())
    return invalid("tokenizer: a member of " + std::string(list_name) + " has no type");
  if (*type->as_string() != "Sequence") {
    if (++n_steps > kMaxSteps) return invalid("tokenizer: too many " + std::string(list_name));
    return step(spec, *type->as_string());
  }
  if (depth >= kMaxSequenceDepth)
    return invalid("tokenizer: " + std::string(list_name) + " nested too deeply");
  const json::Value* list = spec.find(list_name);
  if (list == nullptr || !list->is_array())
    return invalid("tokenizer: a Sequence without " + std::string(list_name));
  for (const json::Value& child : *list->as_array()) {
    KVASIR_TRY_DO(walk(child, list_name, step, depth + 1, n_steps));
  }
  return {};
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

Status for_each_step(const json::Value& spec, std::string_view list_name, const StepFn& step) {
  int n_steps = 0;
  return walk(spec, list_name, step, 0, n_steps);
}

Result<Regex> parse_pattern(const json::Value& spec) {
  const json::Value* pattern = spec.find("pattern");
  if (pattern == nullptr) return invalid("tokenizer: a step without pattern");
  if (const std::string* text = pattern->as_string()) return literal_pattern(*text);
  if (const json::Value* text = pattern->find("String"); text != nullptr && text->is_string()) {
    return literal_pattern(*text->as_string());
  }
  if (const json::Value* text = pattern->find("Regex"); text != nullptr && text->is_string()) {
    return Regex::compile(*text->as_string());
  }
  return invalid("tokenizer: a pattern is neither String nor Regex");
}

Result<std::string> decode_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return invalid("tokenizer: damaged base64 text");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    out.push_back(static_cast<char>(bits >> n_bits & 0xFF));
  }
  return out;
}

Result<std::string> one_character(const json::Value& spec,
                                  std::string_view member,
                                  std::string_view other) {
  const std::string text = spec.string_or(member, other);
  if (text.empty() || first_char(text).n_bytes != text.size()) {
    return invalid("tokenizer: " + std::string(member) + " must be one character");
  }
  return text;
}

}  // namespace kvasir::text::tok
