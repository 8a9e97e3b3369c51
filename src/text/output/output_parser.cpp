#include "text/output_parser.h"

#include <utility>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/output/call_id.h"
#include "text/output/splitter.h"
#include "text/output/stop_gate.h"
#include "text/output/tool_parser.h"

namespace kvasir::text {

// Ids → tagged text → splitter → stop gate → tool parser → pieces.
struct OutputParser::State final : out::SplitSink, out::ToolSink {
  State(const Tokenizer& tokenizer, OutputOptions given, StopMatcher matcher);

  void text(std::string_view tagged);
  void end();

  void reasoning(std::string_view text) override;
  void outside(std::string_view tagged) override;
  void content(std::string_view text) override { add(OutputKind::content, text); }
  void call(out::ParsedCall parsed) override;
  bool is_full() const override { return !options.parallel_tool_calls && n_calls > 0; }

  void add(OutputKind kind, std::string_view text);
  bool is_ended() const { return is_full() || stops.is_matched(); }
  bool is_reasoning() const { return splitter != nullptr && splitter->is_reasoning(); }
  std::vector<OutputPiece> take() { return std::exchange(pieces, {}); }

  OutputOptions options;
  out::ToolSet tools;
  const out::FormatSpec* format;  // null: no calls
  out::MarkerSet markers;
  Detokenizer detokenizer;
  std::unique_ptr<out::Splitter> splitter;  // null: no reasoning
  out::StopGate stops;
  std::unique_ptr<out::ToolParser> parser;
  std::vector<OutputPiece> pieces;
  std::uint32_t n_calls = 0;
  std::uint64_t n_reasoning = 0;
  bool is_finished = false;
};

OutputParser::State::State(const Tokenizer& tokenizer, OutputOptions given, StopMatcher matcher)
    : options(std::move(given)),
      tools(std::move(options.tools)),
      format(tools.empty() ? nullptr : out::find_tool_format(options.format.tools)),
      markers(tokenizer),
      detokenizer(tokenizer),
      stops(std::move(matcher)) {
  if (format != nullptr) {
    for (std::size_t i = 0; i < format->markers.size(); ++i) {
      KVASIR_CHECK(markers.add(format->markers[i]) == i) << "a marker twice in " << format->name;
    }
    for (const std::string_view text : format->spelled) markers.add_spelled(text);
  }
  const bool is_harmony = options.format.reasoning == ReasoningFormat::harmony ||
                          options.format.tools == ToolFormat::harmony;
  const out::SplitterOptions split{.format = options.format.reasoning,
                                   .starts_open = options.starts_in_reasoning,
                                   .keeps_markers = !options.splits_reasoning};
  if (is_harmony) {
    splitter = make_harmony_splitter(markers, split);
  } else if (options.format.reasoning != ReasoningFormat::none) {
    splitter = make_think_splitter(markers, split);
  }
  parser = std::make_unique<out::ToolParser>(format, markers, tools);
}

void OutputParser::State::text(std::string_view tagged) {
  if (tagged.empty()) return;
  if (splitter != nullptr) {
    splitter->push(tagged, *this);
  } else {
    outside(tagged);
  }
}

void OutputParser::State::reasoning(std::string_view text) {
  if (is_ended()) return;
  if (options.splits_reasoning) {
    add(OutputKind::reasoning, text);
    return;
  }
  parser->push(stops.flush(), *this);
  parser->pass(text, *this);
}

void OutputParser::State::outside(std::string_view tagged) {
  if (is_ended()) return;
  parser->push(stops.push(tagged), *this);
  if (stops.is_matched()) parser->finish(*this);
}

void OutputParser::State::call(out::ParsedCall parsed) {
  OutputPiece piece{.kind = OutputKind::tool_call, .text = {}};
  piece.call = {
      .index = n_calls,
      .id = out::call_id(options.id_seed, n_calls, format->id_prefix, format->n_id_characters),
      .name = std::move(parsed.name),
      .arguments = std::move(parsed.arguments)};
  ++n_calls;
  pieces.push_back(std::move(piece));
}

void OutputParser::State::add(OutputKind kind, std::string_view text) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().kind != kind) pieces.push_back({.kind = kind, .text = {}});
  pieces.back().text += text;
}

void OutputParser::State::end() {
  text(detokenizer.finish());
  if (splitter != nullptr) splitter->finish(*this);
  if (is_ended()) return;
  parser->push(stops.flush(), *this);
  parser->finish(*this);
}

OutputParser::OutputParser(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

Result<OutputParser> OutputParser::make(const Tokenizer& tokenizer, OutputOptions options) {
  KVASIR_TRY(StopMatcher matcher, StopMatcher::make(std::move(options.stops)));
  return OutputParser(std::make_unique<State>(tokenizer, std::move(options), std::move(matcher)));
}

std::vector<OutputPiece> OutputParser::push(TokenId id) {
  State& s = *state_;
  if (s.is_ended() || s.is_finished) return {};
  const bool was_reasoning = s.is_reasoning();
  const std::string marker = s.markers.tagged_token(id);
  s.text(marker.empty() ? s.detokenizer.push(id) : marker);
  if (was_reasoning && s.is_reasoning()) ++s.n_reasoning;
  return s.take();
}

std::vector<OutputPiece> OutputParser::finish() {
  State& s = *state_;
  if (!std::exchange(s.is_finished, true) && !s.is_ended()) s.end();
  return s.take();
}

bool OutputParser::is_ended() const noexcept { return state_->is_ended(); }
std::optional<std::string> OutputParser::matched_stop() const { return state_->stops.matched(); }
std::uint32_t OutputParser::n_tool_calls() const noexcept { return state_->n_calls; }
std::uint64_t OutputParser::n_reasoning_tokens() const noexcept { return state_->n_reasoning; }

}  // namespace kvasir::text
