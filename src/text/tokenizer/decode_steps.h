// The streaming steps that decoders are made of.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/regex.h"

namespace kvasir::text::tok {

std::unique_ptr<DecodeStep> byte_level_step();     // byte alphabet → bytes, all one token
std::unique_ptr<DecodeStep> byte_fallback_step();  // <0xHH> → the byte
std::unique_ptr<DecodeStep> fuse_step();           // all tokens become one
std::unique_ptr<DecodeStep> replace_text_step(std::string from, std::string to);
std::unique_ptr<DecodeStep> replace_regex_step(Regex pattern,
                                               std::string to);  // waits for the end of the token
// Cuts up to n_start / n_stop times `content` off each token.
std::unique_ptr<DecodeStep> strip_step(std::string content,
                                       std::size_t n_start,
                                       std::size_t n_stop);
std::unique_ptr<DecodeStep> metaspace_step(std::string mark, bool drops_in_first);
std::unique_ptr<DecodeStep> word_piece_step(std::string prefix, bool cleans, bool is_start);
// End-of-word suffix → space, but → nothing in the last token (waits: holds a token to know).
std::unique_ptr<DecodeStep> bpe_suffix_step(std::string suffix, bool waits);
std::unique_ptr<DecodeStep> join_step(bool is_start);  // a space between tokens
std::unique_ptr<DecodeStep> utf8_step();               // bytes → valid UTF-8 (TXT-16)

}  // namespace kvasir::text::tok
