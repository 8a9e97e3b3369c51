#include "text/tokenizer/decoder.h"

#include <array>

#include "text/tokenizer/decode_steps.h"
#include "text/tokenizer/json_fields.h"

namespace kvasir::text::tok {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

}  // namespace

void Downstream::operator()(const Chunk& chunk) const { chain_.send(step_, chunk); }

void DecodeChain::send(std::size_t step, const Chunk& chunk) {
  if (step < steps_.size()) {
    steps_[step]->push(chunk, Downstream(*this, step + 1));
  } else {
    out_ += chunk.text;
  }
}

void DecodeChain::push(std::string_view token) { send(0, {token, true, true}); }

void DecodeChain::finish() {
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i]->finish(Downstream(*this, i + 1));
}

std::string DecodeChain::take() {
  std::string out;
  out.swap(out_);
  return out;
}

DecodeChain DecoderSpec::start(const DecodeMode& mode) const {
  DecodeChain chain;
  chain.steps_.reserve(makers_.size() + 1);
  for (const Maker& make : makers_) chain.steps_.push_back(make(mode));
  if (!mode.is_raw) chain.steps_.push_back(utf8_step());
  return chain;
}

// Reads the decoders of tokenizer.json into makers of steps.
class DecoderParser {
 public:
  Result<DecoderSpec> parse(const json::Value& spec) {
    if (spec.is_null()) {
      out_.add([](const DecodeMode& mode) { return join_step(mode.is_start); });
      return out_;
    }
    KVASIR_TRY_DO(for_each_step(
        spec, "decoders",
        [&](const json::Value& step, const std::string& type) { return add(step, type); }));
    return out_;
  }

 private:
  Status add(const json::Value& step, const std::string& type) {
    if (type == "ByteLevel") {
      is_fused_ = true;
      out_.add([](const DecodeMode&) { return byte_level_step(); });
    } else if (type == "ByteFallback") {
      out_.add([](const DecodeMode&) { return byte_fallback_step(); });
    } else if (type == "Fuse") {
      is_fused_ = true;
      out_.add([](const DecodeMode&) { return fuse_step(); });
    } else if (type == "Replace") {
      return add_replace(step);
    } else if (type == "Strip") {
      return add_strip(step);
    } else if (type == "Metaspace") {
      return add_metaspace(step);
    } else if (type == "WordPiece") {
      const std::string prefix = step.string_or("prefix", "##");
      const bool cleans = step.bool_or("cleanup", true);
      out_.add(
          [=](const DecodeMode& mode) { return word_piece_step(prefix, cleans, mode.is_start); });
    } else if (type == "BPEDecoder") {
      const std::string suffix = step.string_or("suffix", "</w>");
      out_.add([=](const DecodeMode& mode) { return bpe_suffix_step(suffix, !mode.is_raw); });
    } else {
      return unsupported("tokenizer: unknown decoder type \"" + type + "\"");
    }
    return {};
  }

  Status add_replace(const json::Value& step) {
    const std::string to = step.string_or("content", "");
    const json::Value* pattern = step.find("pattern");
    const json::Value* text = pattern == nullptr     ? nullptr
                              : pattern->is_string() ? pattern
                                                     : pattern->find("String");
    if (text != nullptr && text->is_string()) {
      const std::string from = *text->as_string();
      out_.add([=](const DecodeMode&) { return replace_text_step(from, to); });
      return {};
    }
    KVASIR_TRY(const Regex regex, parse_pattern(step));
    out_.add([=](const DecodeMode&) { return replace_regex_step(regex, to); });
    return {};
  }

  Status add_strip(const json::Value& step) {
    KVASIR_TRY(const std::string content, one_character(step, "content", " "));
    const std::int64_t start = step.int_or("start", 0);
    const std::int64_t stop = step.int_or("stop", 0);
    if (start < 0 || stop < 0) return invalid("tokenizer: a Strip decoder of a negative length");
    const bool is_of_text = is_fused_;  // else of every token
    out_.add([=](const DecodeMode& mode) {
      const bool cuts_start = mode.is_start || !is_of_text;
      return strip_step(content, cuts_start ? static_cast<std::size_t>(start) : 0,
                        static_cast<std::size_t>(stop));
    });
    return {};
  }

  Status add_metaspace(const json::Value& step) {
    KVASIR_TRY(const std::string mark, one_character(step, "replacement", kSpaceMark));
    const bool is_old_never =
        !step.bool_or("add_prefix_space", true) && step.find("prepend_scheme") == nullptr;
    const bool drops = !is_old_never && step.string_or("prepend_scheme", "always") != "never";
    out_.add([=](const DecodeMode& mode) { return metaspace_step(mark, drops && mode.is_start); });
    return {};
  }

  DecoderSpec out_;
  bool is_fused_ = false;
};

Result<DecoderSpec> DecoderSpec::parse(const json::Value& spec) {
  return DecoderParser().parse(spec);
}

DecoderSpec DecoderSpec::byte_level() {
  DecoderSpec out;
  out.add([](const DecodeMode&) { return byte_level_step(); });
  return out;
}

DecoderSpec DecoderSpec::sentencepiece(std::size_t n_stripped) {
  DecoderSpec out;
  out.add([](const DecodeMode&) { return replace_text_step(std::string(kSpaceMark), " "); });
  out.add([](const DecodeMode&) { return byte_fallback_step(); });
  out.add([](const DecodeMode&) { return fuse_step(); });
  if (n_stripped > 0) {
    out.add(
        [=](const DecodeMode& mode) { return strip_step(" ", mode.is_start ? n_stripped : 0, 0); });
  }
  return out;
}

DecoderSpec DecoderSpec::word_piece() {
  DecoderSpec out;
  out.add([](const DecodeMode& mode) { return word_piece_step("##", true, mode.is_start); });
  return out;
}

void DecoderSpec::add_cleanup() {
  using Pair = std::pair<std::string_view, std::string_view>;
  static constexpr std::array kRules{Pair{" .", "."},    Pair{" ?", "?"},   Pair{" !", "!"},
                                     Pair{" ,", ","},    Pair{" ' ", "'"},  Pair{" n't", "n't"},
                                     Pair{" 'm", "'m"},  Pair{" 's", "'s"}, Pair{" 've", "'ve"},
                                     Pair{" 're", "'re"}};
  add([](const DecodeMode&) { return fuse_step(); });
  for (const auto& rule : kRules) {
    add([rule](const DecodeMode&) {
      return replace_text_step(std::string(rule.first), std::string(rule.second));
    });
  }
}

}  // namespace kvasir::text::tok
