#include "text/tokenizer/model.h"

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/scored.h"
#include "text/tokenizer/words.h"

namespace kvasir::text::tok {
namespace {

Status read_vocab_object(const json::Object& entries, Vocab& vocab) {
  vocab.reserve(entries.size());
  for (const auto& [piece, id] : entries) {
    if (!id.is_int() || *id.as_int() < 0)
      return invalid("tokenizer: vocabulary entry \"" + piece + "\" has no id");
    KVASIR_TRY_DO(vocab.add(piece, static_cast<std::uint64_t>(*id.as_int())));
  }
  return {};
}

Status read_vocab_list(const json::Array& entries, Vocab& vocab) {
  vocab.reserve(entries.size());
  for (std::size_t id = 0; id < entries.size(); ++id) {
    const json::Array* pair = entries[id].as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_number()) {
      return invalid("tokenizer: vocabulary entry " + std::to_string(id) +
                     " is not [piece, score]");
    }
    KVASIR_TRY_DO(vocab.add(*(*pair)[0].as_string(), id));
  }
  return {};
}

// Files of the first years have no "type": the members tell.
std::string model_type(const json::Value& spec) {
  const std::string type = spec.string_or("type", "");
  if (!type.empty()) return type;
  if (spec.find("merges") != nullptr) return "BPE";
  const json::Value* vocab = spec.find("vocab");
  if (vocab != nullptr && vocab->is_array()) return "Unigram";
  return spec.find("max_input_chars_per_word") != nullptr ? "WordPiece" : "WordLevel";
}

}  // namespace

Status read_model_vocab(const json::Value& spec, Vocab& vocab) {
  if (!spec.is_object()) return invalid("tokenizer: no model");
  const json::Value* pieces = spec.find("vocab");
  const bool is_list = model_type(spec) == "Unigram";
  if (pieces == nullptr || (is_list ? !pieces->is_array() : !pieces->is_object())) {
    return invalid("tokenizer: the model has no vocabulary");
  }
  return is_list ? read_vocab_list(*pieces->as_array(), vocab)
                 : read_vocab_object(*pieces->as_object(), vocab);
}

Result<std::unique_ptr<Model>> parse_model(const json::Value& spec, const Vocab& vocab) {
  const std::string type = model_type(spec);
  if (type == "Unigram") return parse_unigram(spec, vocab);
  if (type == "BPE") return parse_bpe(spec, vocab);
  if (type == "WordPiece") return parse_word_piece(spec, vocab);
  if (type == "WordLevel") return parse_word_level(spec, vocab);
  return unsupported("tokenizer: unknown model type \"" + type + "\"");
}

}  // namespace kvasir::text::tok
