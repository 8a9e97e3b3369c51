#include "kvasir/synth/vocabulary.h"

#include <algorithm>
#include <array>

namespace kvasir::synth {
namespace {

constexpr std::size_t kBytes = 256;
constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

void append_utf8(std::string& out, std::uint32_t code) {  // below U+0800
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  out += static_cast<char>(0xc0u | code >> 6);
  out += static_cast<char>(0x80u | (code & 0x3fu));
}

// A visible character for each byte (GPT-2): itself where it is printable Latin-1, else the next
// one from U+0100 on.
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> out;
  std::uint32_t next = 0x100;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool is_visible = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    append_utf8(out[b], is_visible ? b : next++);
  }
  return out;
}

std::vector<Special> specials_of(const json::Value& config, std::uint32_t n) {
  std::vector<Special> out;
  const auto add = [&](const std::string& role, const json::Value& id) {
    const std::int64_t* value = id.as_int();
    if (!value || *value < 0 || *value >= n) return;
    const auto shared =
        std::find_if(out.begin(), out.end(), [&](const Special& s) { return s.id == *value; });
    const auto n_same =
        std::count_if(out.begin(), out.end(), [&](const Special& s) { return s.role == role; });
    const std::string number = n_same ? "_" + std::to_string(n_same) : "";
    out.push_back({role, shared != out.end() ? shared->text : "<|" + role + number + "|>",
                   static_cast<std::uint32_t>(*value)});
  };
  for (const char* const role : {"eos", "bos", "pad"}) {
    const json::Value* ids = config.find(std::string(role) + "_token_id");
    if (!ids) continue;
    if (const json::Array* list = ids->as_array()) {
      for (const json::Value& id : *list) add(role, id);
    } else {
      add(role, *ids);
    }
  }
  return out;
}

// Words of the vocabulary, made by need: letters alone and after a space, then each with one more
// letter, …
class Words {
 public:
  Words() {
    const auto bytes = byte_spellings();
    for (const std::string& byte : bytes) made_.push_back(byte);
    space_ = bytes[' '];
    for (char c = 'a'; c <= 'z'; ++c) level_.push_back(std::string(1, c));
    for (char c = 'a'; c <= 'z'; ++c) {
      merge(space_, c);
      level_.push_back(made_.back());
    }
  }
  // The first n words; the merges that make them.
  bool grow(std::size_t n) {
    constexpr int kLongest = 4;
    for (int length = 1; length < kLongest && made_.size() < n; ++length) {
      const std::size_t first = made_.size();
      for (const std::string& stem : level_) {
        if (made_.size() >= n) break;
        for (char c = 'a'; c <= 'z'; ++c) merge(stem, c);
      }
      level_.assign(made_.begin() + static_cast<std::ptrdiff_t>(first), made_.end());
    }
    if (made_.size() < n) return false;
    made_.resize(n);
    merges_.resize(n > kBytes ? n - kBytes : 0);  // one a word
    return true;
  }
  std::vector<std::string>& made() { return made_; }
  std::vector<std::string>& merges() { return merges_; }

 private:
  void merge(const std::string& left, char right) {
    merges_.push_back(left + " " + right);
    made_.push_back(left + right);
  }
  std::vector<std::string> made_, merges_, level_;
  std::string space_;
};

}  // namespace

bool Vocabulary::is_special(std::uint32_t id) const noexcept {
  return std::any_of(specials.begin(), specials.end(),
                     [&](const Special& s) { return s.id == id; });
}

std::optional<Vocabulary> make_vocabulary(const json::Value& config, std::uint32_t n) {
  Vocabulary out;
  out.specials = specials_of(config, n);
  out.chat_template = kChatTemplate;
  std::vector<bool> is_special(n, false);
  for (const Special& special : out.specials) is_special[special.id] = true;
  const auto n_words =
      static_cast<std::size_t>(std::count(is_special.begin(), is_special.end(), false));
  Words words;
  if (n_words < kBytes || !words.grow(n_words)) return std::nullopt;
  out.tokens.resize(n);
  for (const Special& special : out.specials) out.tokens[special.id] = special.text;
  std::size_t next = 0;
  for (std::uint32_t id = 0; id < n; ++id) {
    if (!is_special[id]) out.tokens[id] = std::move(words.made()[next++]);
  }
  out.merges = std::move(words.merges());
  return out;
}

std::string tokenizer_json(const Vocabulary& vocabulary) {
  json::Array added;
  json::Object words;
  for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    words.push_back(vocabulary.tokens[id], id);
    if (!vocabulary.is_special(id)) continue;
    added.push_back(json::Object{{"id", id},
                                 {"content", vocabulary.tokens[id]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }
  json::Array merges;
  for (const std::string& merge : vocabulary.merges) merges.emplace_back(merge);
  const json::Object bytes{{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return json::write(json::Object{{"version", "1.0"},
                                  {"truncation", nullptr},
                                  {"padding", nullptr},
                                  {"added_tokens", std::move(added)},
                                  {"normalizer", nullptr},
                                  {"pre_tokenizer", bytes},
                                  {"post_processor", nullptr},
                                  {"decoder", bytes},
                                  {"model", json::Object{{"type", "BPE"},
                                                         {"dropout", nullptr},
                                                         {"unk_token", nullptr},
                                                         {"continuing_subword_prefix", nullptr},
                                                         {"end_of_word_suffix", nullptr},
                                                         {"fuse_unk", false},
                                                         {"byte_fallback", false},
                                                         {"vocab", std::move(words)},
                                                         {"merges", std::move(merges)}}}});
}

std::string tokenizer_config_json(const Vocabulary& vocabulary) {
  json::Object out{{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false},
                   {"chat_template", vocabulary.chat_template}};
  for (const Special& special : vocabulary.specials) {
    const std::string member = special.role + "_token";
    if (!out.find(member)) out[member] = special.text;
  }
  return json::write(json::Value(std::move(out)), json::Style::pretty) + "\n";
}

}  // namespace kvasir::synth
