// A tool format is a little program over tagged text: steps that read markers, names, values and
// JSON, and say at once when the text is none of it. One region is one run of the program, from the
// opening marker on; it takes a byte at a time, so cuts don't matter, and never goes back, so it is
// linear.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/json_scan.h"
#include "text/output/markers.h"
#include "text/output/tool_set.h"

namespace kvasir::text::out {

enum class Op : std::uint8_t {
  marker,        // exactly this marker
  text,          // exactly this text
  space,         // white space, maybe none
  separators,    // white space, ',' and ';', maybe none
  name,          // 1…256 bytes up to white space, a marker or a bracket, which stay
  until,         // at most 256 bytes of one line up to a character, which is read too
  until_marker,  // anything up to one of some markers, which is read too
  json,          // an object or an array
  emit,          // what was captured since the last emit makes one or more calls
  end            // the region is over
};

inline constexpr std::uint8_t kFail = 255;  // not the format: the text is content
inline constexpr std::uint8_t kNextStep = 254;

constexpr std::uint32_t bit(unsigned marker) { return 1u << marker; }

struct Step {
  Op op;
  std::uint32_t arg = 0;       // marker: its number; until_marker: their bits; until: the character
  std::string_view text = {};  // text
  std::uint8_t slot = 0;       // name of the capture: name, until, until_marker, json
  std::uint8_t other = kFail;  // the step to take when already the first symbol is different
  std::uint8_t next = kNextStep;
  // until_marker: between these two (or two of the same) no marker counts; 0: none, else number + 1
  std::uint8_t quote_open = 0, quote_close = 0;
  bool ends_ok = false;  // until_marker: the end of the output does as well

  constexpr Step to(std::uint8_t step) const {
    Step s = *this;
    s.next = step;
    return s;
  }
  constexpr Step or_else(std::uint8_t step) const {
    Step s = *this;
    s.other = step;
    return s;
  }
  constexpr Step quoted(unsigned open, unsigned close) const {
    Step s = *this;
    s.quote_open = static_cast<std::uint8_t>(open + 1);
    s.quote_close = static_cast<std::uint8_t>(close + 1);
    return s;
  }
  constexpr Step or_end() const {
    Step s = *this;
    s.ends_ok = true;
    return s;
  }
};

namespace step {
constexpr Step marker(unsigned number) { return {.op = Op::marker, .arg = number}; }
constexpr Step text(std::string_view text) { return {.op = Op::text, .text = text}; }
constexpr Step space() { return {.op = Op::space}; }
constexpr Step separators() { return {.op = Op::separators}; }
constexpr Step name(std::uint8_t slot) { return {.op = Op::name, .slot = slot}; }
constexpr Step until(char c, std::uint8_t slot) {
  return {.op = Op::until, .arg = static_cast<unsigned char>(c), .slot = slot};
}
constexpr Step until_marker(std::uint32_t markers, std::uint8_t slot) {
  return {.op = Op::until_marker, .arg = markers, .slot = slot};
}
constexpr Step json(std::uint8_t slot) { return {.op = Op::json, .slot = slot}; }
constexpr Step emit() { return {.op = Op::emit}; }
constexpr Step end() { return {.op = Op::end}; }
}  // namespace step

struct Capture {
  std::uint8_t slot;
  std::string_view text;  // tagged
};

struct ParsedCall {
  std::string name;
  std::string arguments;  // JSON text of an object
};

struct BuildInput {
  std::span<const Capture> captures;
  const MarkerSet& markers;
  const ToolSet& tools;

  // The first capture of a slot, markers as their text; empty when there is none.
  std::string spelled(std::uint8_t slot) const;
  std::string spelled(const Capture& capture) const { return markers.spell(capture.text); }
};

// False: malformed, or a tool that the request doesn't have.
using Build = bool (*)(const BuildInput&, std::vector<ParsedCall>&);

class Region {
 public:
  // is_hopeless: of the beginning of a JSON value, that no call can come of it; maybe null.
  struct Format {
    std::span<const Step> steps;
    Build build = nullptr;
    bool (*is_hopeless)(std::string_view json, const ToolSet& tools) = nullptr;
  };
  Region(const Format& format, const MarkerSet& markers, const ToolSet& tools);

  enum class Verdict : std::uint8_t { more, done, failed };
  struct Fed {
    Verdict verdict = Verdict::more;
    bool is_read = false;  // the symbol belongs to the region
  };
  void start();
  // Calls that became complete are appended to `calls`.
  Fed feed(const Symbol& symbol, std::vector<ParsedCall>& calls);
  // The output ends here.
  void finish(std::vector<ParsedCall>& calls);

  // Tagged text read since the start or the last call.
  const std::string& held() const { return held_; }

 private:
  enum class Move : std::uint8_t { read, read_last, skip, other, fail };
  Move move(const Step& step, const Symbol& symbol);
  Move in_until_marker(const Step& step, const Symbol& symbol);
  Move in_json(const Symbol& symbol);
  void enter(std::uint8_t step);
  bool captures(const Step& step) const;
  // Emits and ends that need no symbol. True: the region goes on.
  bool settle(std::vector<ParsedCall>& calls, Verdict& verdict);
  bool emit(std::vector<ParsedCall>& calls);

  Format format_;
  const MarkerSet& markers_;
  const ToolSet& tools_;
  std::string held_;
  std::uint8_t at_ = 0;         // step
  std::size_t step_begin_ = 0;  // in held_: what the step has read
  bool is_quoted_ = false;
  JsonScanner json_;
  struct Range {
    std::uint8_t slot;
    std::size_t begin, end;  // in held_
  };
  std::vector<Range> ranges_;
};

}  // namespace kvasir::text::out
