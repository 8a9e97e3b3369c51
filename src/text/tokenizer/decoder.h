// Decoders (TXT-11) as a chain of streaming steps: the same code decodes a whole list of ids and
// one token at a time, so the two cannot differ (TXT-15). A DecoderSpec is immutable; a DecodeChain
// is the state of one stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace kvasir::text::tok {

class DecodeChain;

// Part of a token's text. Most steps see whole tokens (begins and ends); after a Fuse all is one
// long token.
struct Chunk {
  std::string_view text;
  bool begins = true;
  bool ends = true;
};

// Where a step sends what it makes.
class Downstream {
 public:
  Downstream(DecodeChain& chain, std::size_t step) : chain_(chain), step_(step) {}
  void operator()(const Chunk& chunk) const;

 private:
  DecodeChain& chain_;
  std::size_t step_;
};

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(const Chunk& chunk, const Downstream& out) = 0;
  virtual void finish(const Downstream&) {}
};

struct DecodeMode {
  bool is_start =
      true;  // false: the text goes on from something; leading-space rules do not apply (TXT-17)
  bool is_raw = false;  // bytes as they are, not made valid UTF-8
};

class DecoderSpec {
 public:
  static Result<DecoderSpec> parse(const json::Value& spec);  // null: tokens joined by spaces
  static DecoderSpec byte_level();
  // ▁ → space, <0xHH> → bytes, and up to n_stripped leading spaces less.
  static DecoderSpec sentencepiece(std::size_t n_stripped);
  static DecoderSpec word_piece();

  void add_cleanup();  // clean_up_tokenization_spaces
  DecodeChain start(const DecodeMode& mode) const;

 private:
  using Maker = std::function<std::unique_ptr<DecodeStep>(const DecodeMode&)>;
  friend class DecoderParser;
  void add(Maker maker) { makers_.push_back(std::move(maker)); }
  std::vector<Maker> makers_;
};

class DecodeChain {
 public:
  void push(std::string_view token);
  void finish();
  std::string take();  // what has come out since the last take

 private:
  friend class DecoderSpec;
  friend class Downstream;
  void send(std::size_t step, const Chunk& chunk);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  std::string out_;
};

}  // namespace kvasir::text::tok
