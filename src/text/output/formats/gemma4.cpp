// <|tool_call>call:name{k:<|"|>str<|"|>,n:1,o:{…},a:[…]}<tool_call|>: Gemma 4. Keys stand bare or
// between the quote markers; strings hold anything but the quote marker.
#include <algorithm>
#include <array>
#include <optional>

#include "json/json.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

enum Slot : std::uint8_t { kName, kBody };
constexpr Marker kQuote = 2;
constexpr int kMaxDepth = 64;

constexpr std::array<std::string_view, 3> kMarkers{"<|tool_call>", "<tool_call|>", "<|\"|>"};
constexpr std::array kSteps{step::marker(0),
                            step::space(),
                            step::text("call:"),
                            step::space(),
                            step::name(kName),
                            /*5*/ step::until_marker(bit(1), kBody).quoted(kQuote, kQuote),
                            step::emit(),
                            step::end()};

class Reader {
 public:
  Reader(std::string_view tagged, const BuildInput& in, std::string_view tool)
      : text_(tagged), in_(in), tool_(tool) {}

  bool arguments(std::string& out) { return object(out, 0) && at_end(); }

 private:
  bool at_end() {
    skip();
    return at_ == text_.size();
  }
  bool has(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) {
    skip();
    if (!has(c)) return false;
    ++at_;
    return true;
  }
  bool has_quote() const { return has(kTag) && symbol_at(text_, at_).marker == kQuote; }

  // Between two quote markers, verbatim.
  std::optional<std::string> quoted() {
    const std::size_t begin = at_ + kTagBytes;
    const std::size_t end = text_.find(tagged_marker(kQuote), begin);
    if (end == std::string_view::npos) return std::nullopt;
    at_ = end + kTagBytes;
    return in_.markers.spell(text_.substr(begin, end - begin));
  }
  // Up to one of these characters.
  std::string_view bare(std::string_view stops) {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(stops, at_), text_.size());
    return trim(text_.substr(begin, at_ - begin));
  }

  bool object(std::string& out, int depth) {
    if (!take('{')) return false;
    Arguments members;
    while (!take('}')) {
      skip();
      const std::optional<std::string> key = has_quote() ? quoted() : std::string(bare(":{}[],"));
      std::string value;
      if (!key || key->empty() || key->find(kTag) != std::string::npos || !take(':') ||
          !this->value(value, *key, depth))
        return false;
      members.add(*key, value);
      skip();
      if (!take(',') && !has('}')) return false;
    }
    out += std::move(members).take();
    return true;
  }

  bool array(std::string& out, int depth) {
    ++at_;
    out += '[';
    for (bool is_first = true; !take(']'); is_first = false) {
      if (!is_first) out += ',';
      if (!value(out, "", depth)) return false;
      skip();
      if (!take(',') && !has(']')) return false;
    }
    out += ']';
    return true;
  }

  bool value(std::string& out, std::string_view key, int depth) {
    skip();
    if (depth > kMaxDepth || at_ == text_.size()) return false;
    if (has('{')) return object(out, depth + 1);
    if (has('[')) return array(out, depth + 1);
    if (has_quote()) {
      const auto text = quoted();
      if (text) json::append_quoted(out, *text);
      return text.has_value();
    }
    const std::string word = in_.markers.spell(bare(",}]"));
    if (word.empty()) return false;
    const bool is_top = depth == 0;
    if (word == "None" && !(is_top && in_.tools.is_string(tool_, key))) {
      out += "null";
    } else {
      out += is_top ? in_.tools.value_json(tool_, key, word)
                    : schema_value_json(word, nullptr, nullptr);
    }
    return true;
  }

  std::string_view text_;
  const BuildInput& in_;
  std::string_view tool_;
  std::size_t at_ = 0;
};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string name = in.spelled(kName);
  if (!in.tools.has(name)) return false;
  std::string arguments;
  if (!Reader(in.captures.back().text, in, name).arguments(arguments)) return false;
  calls.push_back({name, std::move(arguments)});
  return true;
}

}  // namespace

constinit const FormatSpec kGemma4{.format = ToolFormat::gemma4,
                                   .name = "gemma4",
                                   .markers = kMarkers,
                                   .openers = bit(0),
                                   .region = {kSteps, build}};

}  // namespace kvasir::text::out
