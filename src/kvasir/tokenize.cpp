#include "kvasir/tokenize.h"

#include "base/utf8.h"
#include "formats/model_files.h"
#include "kvasir/text/text_model.h"

namespace kvasir {

Result<std::vector<TokenPiece>> tokenize_with_model(const std::filesystem::path& model,
                                                    std::string_view text,
                                                    bool add_special,
                                                    bool parse_special) {
  KVASIR_TRY(const auto files, formats::ModelFiles::open(model));
  KVASIR_TRY(const text::Tokenizer tokenizer, load_tokenizer(files));
  KVASIR_TRY(const auto ids,
             tokenizer.encode(text, {.add_special = add_special, .parse_special = parse_special}));
  std::vector<TokenPiece> pieces;
  for (const TokenId id : ids) pieces.push_back({id, tokenizer.token_bytes(id)});
  return pieces;
}

json::Object piece_json(const TokenPiece& piece) {
  json::Object out{{"id", piece.id}, {"piece", repair_utf8(piece.text)}};
  if (is_valid_utf8(piece.text)) return out;
  json::Array bytes;
  for (const char c : piece.text) bytes.emplace_back(int{static_cast<unsigned char>(c)});
  out.push_back("bytes", std::move(bytes));
  return out;
}

}  // namespace kvasir
