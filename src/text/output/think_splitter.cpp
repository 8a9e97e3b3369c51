// Reasoning between an opening and a closing marker, at the start of the output.
#include <algorithm>
#include <utility>
#include <vector>

#include "text/output/json_scan.h"
#include "text/output/literal_scanner.h"
#include "text/output/reasoning.h"
#include "text/output/splitter.h"

namespace kvasir::text::out {
namespace {

struct Pair {
  std::string open, close;  // as in the stream: text, or a tagged marker
};

std::vector<Pair> make_pairs(MarkerSet& markers, ReasoningFormat format) {
  std::vector<Pair> out;
  for (const ReasoningPair& pair : reasoning_pairs(format)) {
    const Marker open = markers.add(pair.open), close = markers.add(pair.close);
    out.push_back({markers.literal(open) + std::string(pair.after_open), markers.literal(close)});
  }
  return out;
}

std::vector<std::string> closers(const std::vector<Pair>& pairs) {
  std::vector<std::string> out;
  for (const Pair& pair : pairs) out.push_back(pair.close);
  return out;
}

class ThinkSplitter final : public Splitter {
 public:
  ThinkSplitter(MarkerSet& markers, const SplitterOptions& options)
      : markers_(markers),
        options_(options),
        pairs_(make_pairs(markers, options.format)),
        has_response_(options.format == ReasoningFormat::granite && !options.keeps_markers),
        response_open_(has_response_ ? markers.literal(markers.add(kResponseOpen)) : ""),
        closers_(closers(pairs_)),
        response_close_({has_response_ ? markers.literal(markers.add(kResponseClose)) : "\n"}),
        state_(options.starts_open ? State::reasoning : State::start) {
    for (const ReasoningPair& pair : reasoning_pairs(options.format)) {
      own_.push_back(markers.add(pair.open));
      own_.push_back(markers.add(pair.close));
    }
  }

  void push(std::string_view tagged, SplitSink& sink) override {
    std::string rest(tagged);
    while (!rest.empty()) rest = step(std::move(rest), sink);
  }

  void finish(SplitSink& sink) override {
    switch (state_) {
      case State::start:
        outside(held_, sink);
        break;
      case State::after_close:
        outside(std::string_view(held_).substr(n_leading_space()), sink);
        break;
      case State::reasoning:
        drain_reasoning(sink, /*is_end=*/true);
        break;
      case State::response:
        drain_response(sink, /*is_end=*/true);
        break;
      case State::outside:
        break;
    }
    held_.clear();
  }

  bool is_reasoning() const override { return state_ == State::reasoning; }

 private:
  enum class State { start, reasoning, after_close, response, outside };

  // Consumes what it can; returns what the next state has to look at.
  std::string step(std::string text, SplitSink& sink) {
    switch (state_) {
      case State::start:
        held_ += text;
        return leave_start(sink);
      case State::reasoning:
        closers_.push(text);
        return drain_reasoning(sink, /*is_end=*/false);
      case State::after_close:
        held_ += text;
        return leave_after_close(sink);
      case State::response:
        response_close_.push(text);
        return drain_response(sink, /*is_end=*/false);
      case State::outside:
        outside(text, sink);
        return {};
    }
    return {};
  }

  std::size_t n_leading_space() const {
    std::size_t n = 0;
    while (n < held_.size() && is_space(held_[n])) ++n;
    return n;
  }

  std::string leave_start(SplitSink& sink) {
    const std::size_t n_space = n_leading_space();
    const std::string_view rest = std::string_view(held_).substr(n_space);
    if (rest.empty()) return {};
    bool may_grow = false;
    for (const Pair& pair : pairs_) {
      if (rest.starts_with(pair.open)) {
        const std::size_t end = n_space + pair.open.size();
        if (options_.keeps_markers) sink.reasoning(markers_.spell(held_.substr(0, end)));
        return enter(State::reasoning, end);
      }
      may_grow = may_grow || std::string_view(pair.open).starts_with(rest);
    }
    if (has_response_ && rest.starts_with(response_open_)) {
      return enter(State::response, n_space + response_open_.size());
    }
    may_grow = may_grow || (has_response_ && response_open_.starts_with(rest));
    return may_grow ? std::string() : enter(State::outside, 0);
  }

  std::string leave_after_close(SplitSink&) {
    const std::size_t n_space = n_leading_space();
    const std::string_view rest = std::string_view(held_).substr(n_space);
    if (rest.empty()) return {};
    if (!has_response_) return enter(State::outside, n_space);
    if (rest.starts_with(response_open_)) {
      return enter(State::response, n_space + response_open_.size());
    }
    return response_open_.starts_with(rest) ? std::string() : enter(State::outside, n_space);
  }

  // The rest of held_ from `begin` on is the next state's.
  std::string enter(State state, std::size_t begin) {
    state_ = state;
    return std::exchange(held_, {}).substr(begin);
  }

  std::string drain_reasoning(SplitSink& sink, bool is_end) {
    while (auto event = closers_.next(is_end)) {
      if (!event->hit) {
        reasoning(event->text, sink);
        continue;
      }
      if (options_.keeps_markers) sink.reasoning(markers_.spell(pairs_[*event->hit].close));
      state_ = options_.keeps_markers ? State::outside : State::after_close;
      return closers_.take_rest();
    }
    return {};
  }

  // A line break right after the opening marker of a channel ends the channel's name.
  void reasoning(std::string_view tagged, SplitSink& sink) {
    const bool ends_name = options_.format == ReasoningFormat::gemma && !options_.starts_open &&
                           !options_.keeps_markers && std::exchange(is_first_, false);
    if (ends_name && tagged.starts_with('\n')) tagged.remove_prefix(1);
    if (!tagged.empty()) sink.reasoning(markers_.spell(tagged));
  }

  std::string drain_response(SplitSink& sink, bool is_end) {
    while (auto event = response_close_.next(is_end)) {
      if (!event->hit) {
        outside(event->text, sink);
        continue;
      }
      state_ = State::outside;
      return response_close_.take_rest();
    }
    return {};
  }

  // Special tokens of reasoning that come elsewhere vanish, as special tokens do.
  void outside(std::string_view tagged, SplitSink& sink) {
    std::string out;
    for (std::size_t at = 0; at < tagged.size();) {
      const Symbol symbol = symbol_at(tagged, at);
      const bool is_own =
          symbol.is_marker && std::find(own_.begin(), own_.end(), symbol.marker) != own_.end();
      if (!is_own) out += tagged.substr(at, symbol.n_bytes());
      at += symbol.n_bytes();
    }
    if (!out.empty()) sink.outside(out);
  }

  const MarkerSet& markers_;
  SplitterOptions options_;
  std::vector<Pair> pairs_;
  bool has_response_;
  std::string response_open_;
  LiteralScanner closers_, response_close_;
  std::vector<Marker> own_;
  State state_;
  std::string held_;  // start, after_close
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<Splitter> make_think_splitter(MarkerSet& markers, const SplitterOptions& options) {
  return std::make_unique<ThinkSplitter>(markers, options);
}

}  // namespace kvasir::text::out
