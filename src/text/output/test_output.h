// What the tests of the output parser share: tokenizers of one token a byte and a parser run.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "json/json.h"
#include "text/output/byte_vocab.h"
#include "text/output_parser.h"

namespace kvasir::text {

using Strings = std::vector<std::string>;

inline Tokenizer byte_tokenizer(const Strings& specials = {}, const Strings& chunks = {}) {
  auto out = Tokenizer::from_json(out::byte_tokenizer_json(specials, chunks));
  if (!out) ADD_FAILURE() << out.error().what;
  return *std::move(out);
}

// Special tokens by id, everything else a byte a token.
inline std::vector<TokenId> ids_of(const Tokenizer& t, const std::string& text) {
  auto ids = t.encode(text, {.add_special = false, .parse_special = true});
  if (!ids) ADD_FAILURE() << ids.error().what;
  return *std::move(ids);
}

struct Parsed {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  bool is_ended = false;
  std::optional<std::string> stop;
  std::uint64_t n_reasoning = 0;
};

inline Parsed parse_ids(const Tokenizer& t,
                        const OutputOptions& options,
                        const std::vector<TokenId>& ids) {
  auto parser = OutputParser::make(t, options);
  if (!parser) ADD_FAILURE() << parser.error().what;
  Parsed out;
  const auto take = [&](const std::vector<OutputPiece>& pieces) {
    for (const OutputPiece& piece : pieces) {
      EXPECT_TRUE(is_valid_utf8(piece.text));
      if (piece.kind == OutputKind::content) out.content += piece.text;
      if (piece.kind == OutputKind::reasoning) out.reasoning += piece.text;
      if (piece.kind == OutputKind::tool_call) out.calls.push_back(piece.call);
      EXPECT_EQ(piece.kind == OutputKind::tool_call, piece.text.empty());
    }
  };
  for (const TokenId id : ids) {
    if (parser->is_ended()) break;
    take(parser->push(id));
  }
  out.is_ended = parser->is_ended();
  take(parser->finish());
  out.stop = parser->matched_stop();
  out.n_reasoning = parser->n_reasoning_tokens();
  EXPECT_EQ(parser->n_tool_calls(), out.calls.size());
  for (std::size_t i = 0; i < out.calls.size(); ++i) EXPECT_EQ(out.calls[i].index, i) << "C31";
  return out;
}

inline Parsed parse_text(const Tokenizer& t,
                         const OutputOptions& options,
                         const std::string& text) {
  return parse_ids(t, options, ids_of(t, text));
}

inline json::Array weather_tools() {
  const auto tools = json::parse(R"([
    {"type":"function","function":{"name":"get_weather","description":"d","parameters":{
      "type":"object","properties":{
        "city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"},
        "where":{"type":"object"},"tags":{"type":"array","items":{"type":"string"}},
        "note":{"type":["string","null"]},"either":{"type":["string","integer"]},
        "any":{},"choice":{"enum":["a","5"]},"ref":{"$ref":"#/$defs/text"},
        "opt":{"anyOf":[{"type":"number"},{"type":"null"}]}},
      "$defs":{"text":{"type":"string"}}}}},
    {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}])");
  return *tools->as_array();
}

inline OutputOptions tool_options(ToolFormat format) {
  return {.format = {.tools = format, .reasoning = ReasoningFormat::none},
          .tools = weather_tools(),
          .stops = {}};
}

inline OutputOptions reasoning_options(ReasoningFormat format) {
  return {.format = {.tools = ToolFormat::none, .reasoning = format}, .tools = {}, .stops = {}};
}

}  // namespace kvasir::text
