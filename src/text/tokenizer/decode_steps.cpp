#include "text/tokenizer/decode_steps.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/hold_back.h"

namespace kvasir::text::tok {
namespace {

class ByteLevelStep final : public DecodeStep {
 public:
  void push(const Chunk& chunk, const Downstream& out) override {
    bytes_.clear();
    append_from_byte_level(bytes_, chunk.text);
    out({bytes_, is_first_, false});
    is_first_ = false;
  }
  void finish(const Downstream& out) override { out({"", is_first_, true}); }

 private:
  std::string bytes_;
  bool is_first_ = true;
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

class ByteFallbackStep final : public DecodeStep {
 public:
  void push(const Chunk& chunk, const Downstream& out) override {
    const std::string_view t = chunk.text;
    const bool has_shape = t.size() == 6 && t.starts_with("<0x") && t.back() == '>';
    const int high = has_shape ? hex_digit(t[3]) : -1;
    const int low = has_shape ? hex_digit(t[4]) : -1;
    if (high < 0 || low < 0) {
      out(chunk);
      return;
    }
    const char byte = static_cast<char>(high * 16 + low);
    out({{&byte, 1}, chunk.begins, chunk.ends});
  }
};

class FuseStep final : public DecodeStep {
 public:
  void push(const Chunk& chunk, const Downstream& out) override {
    out({chunk.text, is_first_, false});
    is_first_ = false;
  }
  void finish(const Downstream& out) override { out({"", is_first_, true}); }

 private:
  bool is_first_ = true;
};

class ReplaceTextStep final : public DecodeStep {
 public:
  ReplaceTextStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    if (from_.empty()) {
      out(chunk);
      return;
    }
    held_ += chunk.text;
    made_.clear();
    std::size_t at = 0;
    for (std::size_t hit = held_.find(from_); hit != std::string::npos;
         hit = held_.find(from_, at)) {
      made_.append(held_, at, hit - at);
      made_ += to_;
      at = hit + from_.size();
    }
    const std::string_view rest = std::string_view(held_).substr(at);
    const std::size_t n_kept = chunk.ends ? 0 : partial_match_bytes(rest, from_);
    made_ += rest.substr(0, rest.size() - n_kept);
    held_.erase(0, held_.size() - n_kept);
    out({made_, chunk.begins, chunk.ends});
  }

 private:
  std::string from_, to_;
  std::string held_;  // the start of a possible match, within an unfinished token
  std::string made_;
};

class ReplaceRegexStep final : public DecodeStep {
 public:
  ReplaceRegexStep(Regex pattern, std::string to)
      : pattern_(std::move(pattern)), to_(std::move(to)) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    token_ += chunk.text;
    if (!chunk.ends) return;
    token_ = repair_utf8(token_);
    std::vector<Range> hits;
    if (!pattern_.find_all(token_, hits)) hits.clear();  // over its limits: the text stays as it is
    std::string made;
    std::size_t at = 0;
    for (const Range& hit : hits) {
      made.append(token_, at, hit.begin - at);
      made += to_;
      at = hit.end;
    }
    made.append(token_, at);
    token_.clear();
    out({made, true, true});
  }

 private:
  Regex pattern_;
  std::string to_;
  std::string token_;
};

class StripStep final : public DecodeStep {
 public:
  StripStep(std::string content, std::size_t n_start, std::size_t n_stop)
      : content_(std::move(content)), n_start_(n_start), n_stop_(n_stop) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    if (chunk.begins) {
      n_left_ = n_start_;
      held_.clear();
    }
    held_ += chunk.text;
    std::string_view rest = held_;
    while (n_left_ > 0 && rest.size() >= content_.size()) {
      if (!rest.starts_with(content_)) {
        n_left_ = 0;
        break;
      }
      rest.remove_prefix(content_.size());
      --n_left_;
    }
    if (n_left_ > 0 && !content_.starts_with(rest)) n_left_ = 0;
    std::size_t n_tail = 0;  // bytes at the end that may be cut
    for (std::size_t i = 0; i < n_stop_ && rest.substr(0, rest.size() - n_tail).ends_with(content_);
         ++i) {
      n_tail += content_.size();
    }
    // While the start may still be cut, a broken character waits with it.
    const std::size_t n_kept = n_left_ > 0 && !rest.empty() && !chunk.ends ? rest.size() : n_tail;
    const std::string made(rest.substr(0, rest.size() - n_kept));
    held_ = chunk.ends ? std::string() : std::string(rest.substr(rest.size() - n_kept));
    out({made, chunk.begins, chunk.ends});
  }

 private:
  std::string content_;
  std::size_t n_start_, n_stop_;
  std::size_t n_left_ = 0;
  std::string held_;
};

class MetaspaceStep final : public DecodeStep {
 public:
  MetaspaceStep(std::string mark, bool drops_in_first)
      : mark_(std::move(mark)), drops_(drops_in_first) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    made_.clear();
    std::size_t at = 0;
    for (std::size_t hit = chunk.text.find(mark_); hit != std::string_view::npos;
         hit = chunk.text.find(mark_, at)) {
      made_ += chunk.text.substr(at, hit - at);
      if (!drops_) made_ += ' ';
      at = hit + mark_.size();
    }
    made_ += chunk.text.substr(at);
    if (chunk.ends) drops_ = false;
    out({made_, chunk.begins, chunk.ends});
  }

 private:
  std::string mark_;
  bool drops_;
  std::string made_;
};

void replace_in_place(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

class WordPieceStep final : public DecodeStep {
 public:
  WordPieceStep(std::string prefix, bool cleans, bool is_start)
      : prefix_(std::move(prefix)), cleans_(cleans), is_first_(is_start) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    std::string text(chunk.text);
    if (!is_first_ && chunk.begins) {
      if (text.starts_with(prefix_)) {
        text.erase(0, prefix_.size());
      } else {
        text.insert(0, 1, ' ');
      }
    }
    is_first_ = false;
    if (cleans_) clean(text);
    out({text, chunk.begins, chunk.ends});
  }

 private:
  static void clean(std::string& text) {
    using Pair = std::pair<std::string_view, std::string_view>;
    static constexpr std::array kRules{
        Pair{" .", "."},   Pair{" ?", "?"},     Pair{" !", "!"},    Pair{" ,", ","},
        Pair{" ' ", "'"},  Pair{" n't", "n't"}, Pair{" 'm", "'m"},  Pair{" do not", " don't"},
        Pair{" 's", "'s"}, Pair{" 've", "'ve"}, Pair{" 're", "'re"}};
    for (const auto& [from, to] : kRules) replace_in_place(text, from, to);
  }

  std::string prefix_;
  bool cleans_;
  bool is_first_;
};

class BpeSuffixStep final : public DecodeStep {
 public:
  BpeSuffixStep(std::string suffix, bool waits) : suffix_(std::move(suffix)), waits_(waits) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    flush(" ", out);
    held_ = chunk.text;
    has_held_ = true;
    if (!waits_) flush(" ", out);
  }
  void finish(const Downstream& out) override { flush("", out); }

 private:
  void flush(std::string_view to, const Downstream& out) {
    if (!has_held_) return;
    if (!suffix_.empty()) replace_in_place(held_, suffix_, to);
    out({held_, true, true});
    has_held_ = false;
  }

  std::string suffix_;
  bool waits_;
  std::string
      held_;  // the newest token: only the next one, or the end, says what its suffix becomes
  bool has_held_ = false;
};

class JoinStep final : public DecodeStep {
 public:
  explicit JoinStep(bool is_start) : is_first_(is_start) {}

  void push(const Chunk& chunk, const Downstream& out) override {
    if (!is_first_ && chunk.begins) out({" ", true, true});
    is_first_ = false;
    out(chunk);
  }

 private:
  bool is_first_;
};

class Utf8Step final : public DecodeStep {
 public:
  void push(const Chunk& chunk, const Downstream& out) override {
    held_ += chunk.text;
    release(false, out);
  }
  void finish(const Downstream& out) override { release(true, out); }

 private:
  void release(bool is_end, const Downstream& out) {
    made_.clear();
    std::string_view rest = held_;
    while (!rest.empty()) {
      const DecodedChar c = decode_utf8(rest);
      if (c.truncated && !is_end) break;
      append_utf8(made_, c.code_point);
      rest.remove_prefix(c.n_bytes);
    }
    held_.erase(0, held_.size() - rest.size());
    if (!made_.empty()) out({made_, true, true});
  }

  std::string held_;  // at most three bytes of an unfinished character
  std::string made_;
};

}  // namespace

std::unique_ptr<DecodeStep> byte_level_step() { return std::make_unique<ByteLevelStep>(); }
std::unique_ptr<DecodeStep> byte_fallback_step() { return std::make_unique<ByteFallbackStep>(); }
std::unique_ptr<DecodeStep> fuse_step() { return std::make_unique<FuseStep>(); }
std::unique_ptr<DecodeStep> replace_text_step(std::string from, std::string to) {
  return std::make_unique<ReplaceTextStep>(std::move(from), std::move(to));
}
std::unique_ptr<DecodeStep> replace_regex_step(Regex pattern, std::string to) {
  return std::make_unique<ReplaceRegexStep>(std::move(pattern), std::move(to));
}
std::unique_ptr<DecodeStep> strip_step(std::string content,
                                       std::size_t n_start,
                                       std::size_t n_stop) {
  return std::make_unique<StripStep>(std::move(content), n_start, n_stop);
}
std::unique_ptr<DecodeStep> metaspace_step(std::string mark, bool drops_in_first) {
  return std::make_unique<MetaspaceStep>(std::move(mark), drops_in_first);
}
std::unique_ptr<DecodeStep> word_piece_step(std::string prefix, bool cleans, bool is_start) {
  return std::make_unique<WordPieceStep>(std::move(prefix), cleans, is_start);
}
std::unique_ptr<DecodeStep> bpe_suffix_step(std::string suffix, bool waits) {
  return std::make_unique<BpeSuffixStep>(std::move(suffix), waits);
}
std::unique_ptr<DecodeStep> join_step(bool is_start) {
  return std::make_unique<JoinStep>(is_start);
}
std::unique_ptr<DecodeStep> utf8_step() { return std::make_unique<Utf8Step>(); }

}  // namespace kvasir::text::tok
