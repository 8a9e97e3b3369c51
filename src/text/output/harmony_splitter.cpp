// gpt-oss: messages of the form `<|start|>assistant<|channel|>name<|message|>text<|end|>`, the
// first without its beginning, which is the prompt's end. Channel analysis is reasoning, other
// messages are content; one with a recipient goes on, whole, to the tool parser.
#include <algorithm>
#include <array>
#include <utility>

#include "text/output/harmony.h"
#include "text/output/json_scan.h"
#include "text/output/literal_scanner.h"
#include "text/output/splitter.h"

namespace kvasir::text::out {

std::string_view harmony_recipient(std::string_view header) {
  const std::size_t at = header.find("to=");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + 3);
  std::size_t end = 0;
  while (end < rest.size() && !is_space(rest[end]) && rest[end] != '<') ++end;
  return rest.substr(0, end);
}

namespace {

constexpr std::size_t kMaxHeaderBytes = 512;

class HarmonySplitter final : public Splitter {
 public:
  HarmonySplitter(MarkerSet& markers, const SplitterOptions& options)
      : markers_(markers),
        keeps_markers_(options.keeps_markers),
        call_(markers.add(kHarmonyCall)),
        start_(markers.add("<|start|>")),
        channel_(markers.add("<|channel|>")),
        constrain_(markers.add("<|constrain|>")),
        message_(markers.add("<|message|>")),
        ends_{markers.add("<|end|>"), markers.add("<|return|>"), markers.add("<|call|>")},
        all_{start_, channel_, constrain_, message_, ends_[0], ends_[1], ends_[2]},
        scanner_(texts_of(markers, all_)),
        state_(options.starts_open ? State::reasoning : State::header) {
    for (const Marker marker : all_) {
      if (!markers.is_special(marker)) text_markers_.push_back(marker);
    }
  }

  void push(std::string_view tagged, SplitSink& sink) override {
    scanner_.push(tagged);
    drain(sink, /*is_end=*/false);
  }

  void finish(SplitSink& sink) override {
    drain(sink, /*is_end=*/true);
    if (state_ == State::header) give_up_header(sink);
  }

  bool is_reasoning() const override { return state_ == State::reasoning; }

 private:
  enum class State { header, reasoning, content, call, between };

  static std::vector<std::string> texts_of(const MarkerSet& markers,
                                           const std::array<Marker, 7>& all) {
    std::vector<std::string> out;
    for (const Marker marker : all) {
      if (!markers.is_special(marker)) out.emplace_back(markers.text(marker));
    }
    return out;
  }

  void drain(SplitSink& sink, bool is_end) {
    while (auto event = scanner_.next(is_end)) {
      if (event->hit) {
        on_marker(text_markers_[*event->hit], sink);
        continue;
      }
      const std::string_view tagged = event->text;
      for (std::size_t at = 0; at < tagged.size();) {
        const std::size_t tag = std::min(tagged.find(kTag, at), tagged.size());
        if (tag > at) on_text(tagged.substr(at, tag - at), sink);
        if (tag < tagged.size()) on_marker(symbol_at(tagged, tag).marker, sink);
        at = tag + kTagBytes;
      }
    }
  }

  void on_text(std::string_view text, SplitSink& sink) {
    switch (state_) {
      case State::header:
        header_ += text;
        if (header_.size() > kMaxHeaderBytes || !may_be_header()) header_is_content(sink);
        break;
      case State::reasoning:
        sink.reasoning(text);
        break;
      case State::content:
      case State::call:
        sink.outside(text);
        break;
      case State::between:
        between_text(text, sink);
        break;
    }
  }

  // White space between messages is nothing.
  void between_text(std::string_view text, SplitSink& sink) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    if (text.empty()) return;
    state_ = State::content;
    sink.outside(text);
  }

  void on_marker(Marker marker, SplitSink& sink) {
    if (state_ == State::header) {
      header_marker(marker, sink);
    } else if (marker == start_ || marker == channel_) {
      if (state_ == State::call) sink.outside(tagged_marker(call_));  // ends it, without a text
      begin_header(marker);
    } else if (is_end(marker)) {
      if (state_ == State::call) sink.outside(tagged_marker(marker));
      if (state_ == State::reasoning && keeps_markers_) sink.reasoning(markers_.text(marker));
      state_ = State::between;
    } else if (!is_harmony(marker)) {
      on_text_of(marker, sink);
    }
  }

  // A marker of another format.
  void on_text_of(Marker marker, SplitSink& sink) {
    if (state_ == State::reasoning) {
      sink.reasoning(markers_.text(marker));
    } else {
      if (state_ == State::between) state_ = State::content;
      sink.outside(tagged_marker(marker));
    }
  }

  void begin_header(Marker marker) {
    state_ = State::header;
    header_ = tagged_marker(marker);
  }

  void header_marker(Marker marker, SplitSink& sink) {
    if (marker == message_) {
      end_header(sink);
    } else if (marker == channel_ || marker == constrain_) {
      header_ += tagged_marker(marker);
    } else if (marker == start_) {
      give_up_header(sink);
      begin_header(marker);
    } else {
      header_ += tagged_marker(marker);
      give_up_header(sink);
      state_ = State::between;
    }
  }

  void end_header(SplitSink& sink) {
    const std::string header = std::exchange(header_, {});
    const std::string spelled = markers_.spell(header);
    if (!harmony_recipient(spelled).empty()) {
      state_ = State::call;
      sink.outside(tagged_marker(call_) + header + tagged_marker(message_));
      return;
    }
    constexpr std::string_view kAnalysis = "<|channel|>analysis";
    state_ = spelled.find(kAnalysis) != std::string::npos ? State::reasoning : State::content;
    if (state_ == State::reasoning && keeps_markers_) sink.reasoning(spelled + "<|message|>");
  }

  // Before any marker, the prompt's unfinished header goes on: nothing, or a recipient.
  bool may_be_header() const {
    if (header_.find(kTag) != std::string::npos) return true;
    constexpr std::string_view kTo = "to=";
    const std::string_view text = trim(header_);
    return text.starts_with(kTo) || kTo.starts_with(text);
  }

  void header_is_content(SplitSink& sink) {
    state_ = State::content;
    sink.outside(std::exchange(header_, {}));
  }

  // A header without its message. Only an unfinished call, or plain text, is worth showing.
  void give_up_header(SplitSink& sink) {
    const bool is_text = header_.find(kTag) == std::string::npos;
    const bool is_call = header_.find("to=") != std::string::npos;
    if ((is_text || is_call) && !header_.empty()) sink.outside(header_);
    header_.clear();
  }

  bool is_end(Marker marker) const {
    return marker == ends_[0] || marker == ends_[1] || marker == ends_[2];
  }
  bool is_harmony(Marker marker) const {
    return is_end(marker) || marker == start_ || marker == channel_ || marker == constrain_ ||
           marker == message_;
  }

  const MarkerSet& markers_;
  bool keeps_markers_;
  Marker call_, start_, channel_, constrain_, message_;
  std::array<Marker, 3> ends_;
  std::array<Marker, 7> all_;
  LiteralScanner scanner_;
  std::vector<Marker> text_markers_;  // by literal of the scanner
  State state_;
  std::string header_;  // tagged
};

}  // namespace

std::unique_ptr<Splitter> make_harmony_splitter(MarkerSet& markers,
                                                const SplitterOptions& options) {
  return std::make_unique<HarmonySplitter>(markers, options);
}

}  // namespace kvasir::text::out
