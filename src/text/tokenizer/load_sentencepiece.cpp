// SentencePiece tokenizer.model (the ModelProto of sentencepiece_model.proto) → Pipeline.
#include <bit>
#include <cmath>

#include "base/utf8.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/protobuf.h"
#include "text/tokenizer/scored.h"

namespace kvasir::text::tok {
namespace {

enum PieceType : std::uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
enum ModelType : std::uint64_t { kUnigramModel = 1, kBpeModel = 2 };

struct Proto {
  struct Piece {
    std::string_view text;
    float score = 0;
    std::uint64_t type = kNormal;
  };
  std::vector<Piece> pieces;
  std::uint64_t model_type = kUnigramModel;
  bool has_byte_fallback = false;
  bool puts_space_last = false;  // treat_whitespace_as_suffix
  std::int32_t unk = 0, bos = 1, eos = 2, pad = -1;
  std::string_view charsmap;
  SentencePieceRules rules{.removes_extra_spaces = true};
};

Status damaged() { return invalid("tokenizer.model: damaged"); }

Status read_piece(std::string_view bytes, Proto& out) {
  Proto::Piece piece;
  ProtoReader reader(bytes);
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->is_bytes) piece.text = field->bytes;
    if (field->number == 2)
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
    if (field->number == 3) piece.type = field->value;
  }
  if (reader.is_damaged() || !is_valid_utf8(piece.text) || std::isnan(piece.score))
    return damaged();
  out.pieces.push_back(piece);
  return {};
}

Status read_trainer(std::string_view bytes, Proto& out) {
  ProtoReader reader(bytes);
  while (const auto field = reader.next()) {
    const auto id = static_cast<std::int32_t>(field->value);
    switch (field->number) {
      case 3:
        out.model_type = field->value;
        break;
      case 24:
        out.puts_space_last = field->value != 0;
        break;
      case 35:
        out.has_byte_fallback = field->value != 0;
        break;
      case 40:
        out.unk = id;
        break;
      case 41:
        out.bos = id;
        break;
      case 42:
        out.eos = id;
        break;
      case 43:
        out.pad = id;
        break;
      default:
        break;
    }
  }
  return reader.is_damaged() ? damaged() : Status{};
}

Status read_normalizer(std::string_view bytes, Proto& out) {
  ProtoReader reader(bytes);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 2:
        out.charsmap = field->bytes;
        break;
      case 3:
        out.rules.adds_dummy_prefix = field->value != 0;
        break;
      case 4:
        out.rules.removes_extra_spaces = field->value != 0;
        break;
      case 5:
        out.rules.escapes_spaces = field->value != 0;
        break;
      default:
        break;
    }
  }
  return reader.is_damaged() ? damaged() : Status{};
}

Result<Proto> read_proto(std::string_view bytes) {
  Proto out;
  ProtoReader reader(bytes);
  while (const auto field = reader.next()) {
    if (!field->is_bytes) continue;
    if (field->number == 1) KVASIR_TRY_DO(read_piece(field->bytes, out));
    if (field->number == 2) KVASIR_TRY_DO(read_trainer(field->bytes, out));
    if (field->number == 3) KVASIR_TRY_DO(read_normalizer(field->bytes, out));
  }
  if (reader.is_damaged()) return damaged().error();
  if (out.pieces.empty()) return invalid("tokenizer.model: no pieces");
  if (out.model_type != kUnigramModel && out.model_type != kBpeModel) {
    return unsupported("tokenizer.model: neither a Unigram nor a BPE model");
  }
  if (out.puts_space_last) return unsupported("tokenizer.model: treat_whitespace_as_suffix");
  return out;
}

// Control pieces are special, matched in raw text; user-defined ones are matched in normalized
// text, as SentencePiece itself does.
Status add_pieces(const Proto& proto, Pipeline& p) {
  p.vocab.reserve(proto.pieces.size());
  for (std::size_t id = 0; id < proto.pieces.size(); ++id)
    KVASIR_TRY_DO(p.vocab.add(proto.pieces[id].text, id));
  for (std::size_t id = 0; id < proto.pieces.size(); ++id) {
    const Proto::Piece& piece = proto.pieces[id];
    AddedToken token{.content = std::string(piece.text), .id = static_cast<TokenId>(id)};
    token.is_special = piece.type == kControl || piece.type == kUnknown;
    if (token.is_special) KVASIR_TRY_DO(p.add_token(std::move(token)));
    if (piece.type != kUserDefined) continue;
    token.is_normalized = true;
    p.added.add(std::move(token), piece.text);
  }
  return {};
}

std::unique_ptr<Model> make_model(const Proto& proto, const Pipeline& p) {
  ScoredOptions o;
  o.has_byte_fallback = proto.has_byte_fallback;
  o.unk = p.unk;
  o.is_mergeable.resize(p.vocab.end());
  const bool is_bpe = proto.model_type == kBpeModel;
  std::vector<float> scores(p.vocab.end());
  for (std::size_t id = 0; id < proto.pieces.size(); ++id) {
    const std::uint64_t type = proto.pieces[id].type;
    o.is_mergeable[id] = type == kNormal;
    scores[id] = proto.pieces[id].score;
  }
  if (is_bpe) return std::make_unique<ScoredBpe>(p.vocab, std::move(scores), std::move(o));
  return std::make_unique<Unigram>(p.vocab, std::vector<double>(scores.begin(), scores.end()),
                                   std::move(o));
}

void name_special(const Proto& proto, Pipeline& p) {
  const auto set = [&](std::int32_t id, std::string_view name, std::optional<TokenId>& out) {
    if (id < 0 || static_cast<std::size_t>(id) >= proto.pieces.size()) return;
    out = static_cast<TokenId>(id);
    for (const auto& named : p.named_special_tokens) {
      if (named.first == name) return;  // the configuration's word counts
    }
    p.named_special_tokens.emplace_back(name, proto.pieces[*out].text);
  };
  set(proto.bos, "bos_token", p.bos);
  set(proto.eos, "eos_token", p.eos);
  set(proto.unk, "unk_token", p.unk);
  set(proto.pad, "pad_token", p.pad);
}

}  // namespace

Result<PipelinePtr> load_sentencepiece(std::string_view bytes, const json::Value& config) {
  if (bytes.size() > kMaxFileBytes) return invalid("tokenizer.model of more than 256 MiB");
  KVASIR_TRY(Proto proto, read_proto(bytes));
  auto p = std::make_shared<Pipeline>();
  KVASIR_TRY_DO(add_pieces(proto, *p));
  KVASIR_TRY_DO(add_config_tokens(config, *p));
  name_special(proto, *p);
  hide_special_tokens(*p);
  p->model = make_model(proto, *p);
  proto.rules.prefixes_start_only = !config.bool_or("legacy", true);
  KVASIR_TRY(Charsmap charsmap, Charsmap::parse(proto.charsmap));
  ByteTrie kept;
  for (const Proto::Piece& piece : proto.pieces) {
    if (piece.type == kUserDefined) kept.insert(piece.text, 0);
  }
  p->normalizers.push_back(
      make_sentencepiece_normalizer(std::move(charsmap), proto.rules, std::move(kept)));
  p->decoder = DecoderSpec::sentencepiece(proto.rules.n_stripped());
  // What the reference adds when the configuration says nothing: Llama's tokenizers a BOS, T5's an
  // EOS.
  const bool is_bpe = proto.model_type == kBpeModel;
  const bool is_t5 = config.string_or("tokenizer_class", "").starts_with("T5");
  if (is_bpe && p->bos) p->post.set_bos(*p->bos, true);
  if (is_t5 && p->eos) p->post.set_eos(*p->eos, true);
  apply_config_rules(config, *p);
  p->finish_loading();
  return PipelinePtr(std::move(p));
}

}  // namespace kvasir::text::tok
