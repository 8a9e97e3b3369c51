#include "formats/gguf_vocab.h"

#include "formats/gguf.h"

namespace kvasir::formats {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

const GgufValue* find(const GgufContent& content, std::string_view key) {
  return content.find(std::string(kPrefix).append(key));
}

std::vector<std::string> strings_of(const GgufContent& content, std::string_view key) {
  const GgufValue* value = find(content, key);
  if (!value) return {};
  const std::vector<std::string_view> views = value->strings();
  return {views.begin(), views.end()};
}

template <class T>
std::vector<T> numbers_of(const GgufContent& content, std::string_view key) {
  std::vector<T> out;
  const GgufValue* value = find(content, key);
  if (!value) return out;
  for (const double number : value->numbers()) {
    const bool fits = std::is_floating_point_v<T> || (number >= -0x1p31 && number < 0x1p31);
    out.push_back(fits ? static_cast<T>(number) : T{});
  }
  return out;
}

std::optional<bool> flag_of(const GgufContent& content, std::string_view key) {
  const GgufValue* value = find(content, key);
  if (!value || !value->number()) return std::nullopt;
  return *value->number() != 0;
}

Status read_ids(const GgufContent& content, GgufVocab& vocab) {
  struct Id {
    std::string_view key;
    std::optional<std::uint32_t>& id;
  };
  const Id ids[] = {{"bos_token_id", vocab.bos_id},
                    {"eos_token_id", vocab.eos_id},
                    {"unknown_token_id", vocab.unknown_id},
                    {"padding_token_id", vocab.padding_id},
                    {"seperator_token_id", vocab.separator_id},  // spelt so by the format
                    {"mask_token_id", vocab.mask_id},
                    {"cls_token_id", vocab.cls_id},
                    {"eot_token_id", vocab.eot_id},
                    {"eom_token_id", vocab.eom_id}};
  for (const Id& each : ids) {
    const GgufValue* value = find(content, each.key);
    if (!value) continue;
    const auto id = value->whole();
    if (id && *id == 0xffffffffu) continue;  // how converters say "none"
    if (!id || *id >= vocab.tokens.size())
      return invalid("metadata '" + std::string(kPrefix).append(each.key) + "' is not a token");
    each.id = static_cast<std::uint32_t>(*id);
  }
  return {};
}

}  // namespace

Result<GgufVocab> read_gguf_vocab(const ModelFiles& files) {
  const GgufContent* content = files.gguf();
  const std::string where = files.path().string() + ": ";
  if (!content || !find(*content, "tokens"))
    return not_found(where + "no tokenizer in this model file");
  GgufVocab vocab;
  vocab.model = content->text_or("tokenizer.ggml.model", "");
  vocab.pre = content->text_or("tokenizer.ggml.pre", "");
  vocab.chat_template = content->text_or("tokenizer.chat_template", "");
  vocab.tokens = strings_of(*content, "tokens");
  vocab.merges = strings_of(*content, "merges");
  vocab.scores = numbers_of<float>(*content, "scores");
  vocab.token_types = numbers_of<std::int32_t>(*content, "token_type");
  const std::size_t n = vocab.tokens.size();
  const bool fits = (vocab.scores.empty() || vocab.scores.size() == n) &&
                    (vocab.token_types.empty() || vocab.token_types.size() == n);
  if (n == 0 || !fits) return invalid(where + "tokenizer lists of different lengths");
  vocab.add_bos = flag_of(*content, "add_bos_token");
  vocab.add_eos = flag_of(*content, "add_eos_token");
  vocab.add_space_prefix = flag_of(*content, "add_space_prefix");
  vocab.remove_extra_whitespaces = flag_of(*content, "remove_extra_whitespaces");
  if (const Status ids = read_ids(*content, vocab); !ids) return invalid(where + ids.error().what);
  return vocab;
}

}  // namespace kvasir::formats
