// What an embedding request asks for and what comes back (MOD-61). Values, shared by the server,
// the command line and C++ callers. No thread rule.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "contract/outcome.h"

namespace kvasir {

struct EmbedInput {  // one of the two
  std::string text;
  std::vector<TokenId> tokens;
};

struct EmbedRequest {
  std::vector<EmbedInput> inputs;  // at least one
  // Texts are queries, each fed as "Instruct: {instruction}\nQuery:{text}".
  std::optional<std::string> instruction;
  std::optional<std::uint32_t> dimensions;  // of the vectors: their first ones, normalised again
  bool truncates = false;  // inputs longer than the context lose their ends; else they are refused
  std::optional<std::chrono::milliseconds> timeout;  // SCH-41
};

struct Embedded {
  std::vector<std::vector<float>> vectors;  // one an input, of length 1
  std::uint64_t prompt_tokens = 0;          // of all inputs, as fed
};

struct EmbeddingEnd {
  Embedded embedded;  // without vectors unless the outcome is `completed`
  Outcome outcome;    // of the first input that ended otherwise
};
// Called once, on the engine's thread; must not block.
using OnEmbedded = std::function<void(EmbeddingEnd)>;

class EmbeddingRun;  // private: the inputs of one request on their way through the engine

// A started embedding request; to cancel it by.
using Embedding = std::shared_ptr<EmbeddingRun>;  // shared with the rows' sinks

}  // namespace kvasir
