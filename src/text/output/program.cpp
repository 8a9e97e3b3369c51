#include "text/output/program.h"

#include "base/check.h"

namespace kvasir::text::out {
namespace {

constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kHopelessBytes = 512;  // of a JSON value's beginning

bool ends_name(char c) {
  return is_space(c) || std::string_view("{}()[]<>\"',;").find(c) != std::string_view::npos;
}

}  // namespace

std::string BuildInput::spelled(std::uint8_t slot) const {
  for (const Capture& capture : captures) {
    if (capture.slot == slot) return markers.spell(capture.text);
  }
  return {};
}

Region::Region(const Format& format, const MarkerSet& markers, const ToolSet& tools)
    : format_(format), markers_(markers), tools_(tools) {}

void Region::start() {
  held_.clear();
  ranges_.clear();
  enter(0);
}

void Region::enter(std::uint8_t step) {
  KVASIR_CHECK(step < format_.steps.size()) << "a tool format's steps run out";
  at_ = step;
  step_begin_ = held_.size();
  is_quoted_ = false;
  json_ = {};
}

bool Region::captures(const Step& step) const {
  return step.op == Op::name || step.op == Op::until || step.op == Op::until_marker ||
         step.op == Op::json;
}

// What the step makes of the symbol: read: takes it and stays; read_last: takes it and is done;
// skip: is done before it.
Region::Move Region::move(const Step& step, const Symbol& s) {
  const std::size_t n_read = held_.size() - step_begin_;
  switch (step.op) {
    case Op::marker:
      return s.is_marker && s.marker == step.arg ? Move::read_last : Move::other;
    case Op::text:
      if (s.is_marker || s.byte != step.text[n_read]) return n_read == 0 ? Move::other : Move::fail;
      return n_read + 1 == step.text.size() ? Move::read_last : Move::read;
    case Op::space:
      return !s.is_marker && is_space(s.byte) ? Move::read : Move::skip;
    case Op::separators:
      return !s.is_marker && (is_space(s.byte) || s.byte == ',' || s.byte == ';') ? Move::read
                                                                                  : Move::skip;
    case Op::name:
      if (s.is_marker || ends_name(s.byte)) return n_read == 0 ? Move::other : Move::skip;
      return n_read < kMaxNameBytes ? Move::read : Move::fail;
    case Op::until:
      if (s.is_marker || s.byte == '\n' || n_read > kMaxNameBytes) return Move::fail;
      return s.byte == static_cast<char>(step.arg) ? Move::read_last : Move::read;
    case Op::until_marker:
      return in_until_marker(step, s);
    case Op::json:
      return in_json(s);
    case Op::emit:
    case Op::end:
      break;
  }
  return Move::fail;
}

Region::Move Region::in_until_marker(const Step& step, const Symbol& s) {
  if (!s.is_marker) return Move::read;
  if (is_quoted_) {
    is_quoted_ = s.marker + 1 != step.quote_close;
    return Move::read;
  }
  if (s.marker + 1 == step.quote_open) {
    is_quoted_ = true;
    return Move::read;
  }
  return s.marker < 32 && (step.arg & bit(s.marker)) != 0 ? Move::read_last : Move::read;
}

Region::Move Region::in_json(const Symbol& s) {
  const bool is_first = held_.size() == step_begin_;
  const auto state = s.is_marker ? json_.push_marker() : json_.push(s.byte);
  if (state == JsonScanner::State::bad) return is_first ? Move::other : Move::fail;
  if (state == JsonScanner::State::closed) return Move::read_last;
  const std::string_view begin = std::string_view(held_).substr(step_begin_);
  const bool asks = format_.is_hopeless != nullptr && begin.size() <= kHopelessBytes;
  return asks && format_.is_hopeless(begin, tools_) ? Move::fail : Move::read;
}

Region::Fed Region::feed(const Symbol& symbol, std::vector<ParsedCall>& calls) {
  for (;;) {
    const Step& step = format_.steps[at_];
    const Move move = this->move(step, symbol);
    if (move == Move::fail || (move == Move::other && step.other == kFail)) {
      return {Verdict::failed, false};
    }
    const bool reads = move == Move::read || move == Move::read_last;
    std::size_t end = held_.size();
    if (reads) {
      held_ += symbol.is_marker ? tagged_marker(symbol.marker) : std::string(1, symbol.byte);
      if (step.op == Op::json) end = held_.size();
    }
    if (move == Move::read) return {Verdict::more, true};
    if (move != Move::other && captures(step)) ranges_.push_back({step.slot, step_begin_, end});
    const bool is_plain = step.next == kNextStep;
    enter(move == Move::other ? step.other
                              : (is_plain ? static_cast<std::uint8_t>(at_ + 1) : step.next));
    Verdict verdict = Verdict::more;
    if (!settle(calls, verdict)) return {verdict, reads};
    if (reads) return {Verdict::more, true};
  }
}

bool Region::settle(std::vector<ParsedCall>& calls, Verdict& verdict) {
  while (format_.steps[at_].op == Op::emit) {
    if (!emit(calls)) {
      verdict = Verdict::failed;
      return false;
    }
    const std::uint8_t next = format_.steps[at_].next;
    held_.clear();
    ranges_.clear();
    enter(next == kNextStep ? static_cast<std::uint8_t>(at_ + 1) : next);
  }
  if (format_.steps[at_].op != Op::end) return true;
  verdict = Verdict::done;
  return false;
}

bool Region::emit(std::vector<ParsedCall>& calls) {
  std::vector<Capture> captured;
  captured.reserve(ranges_.size());
  const std::string_view held = held_;
  for (const Range& r : ranges_)
    captured.push_back({r.slot, held.substr(r.begin, r.end - r.begin)});
  std::vector<ParsedCall> built;
  if (!format_.build({captured, markers_, tools_}, built) || built.empty()) return false;
  for (ParsedCall& call : built) calls.push_back(std::move(call));
  return true;
}

void Region::finish(std::vector<ParsedCall>& calls) {
  const Step& step = format_.steps[at_];
  if (step.op != Op::until_marker || !step.ends_ok || is_quoted_) return;
  ranges_.push_back({step.slot, step_begin_, held_.size()});
  enter(step.next == kNextStep ? static_cast<std::uint8_t>(at_ + 1) : step.next);
  Verdict verdict = Verdict::more;
  settle(calls, verdict);
}

}  // namespace kvasir::text::out
