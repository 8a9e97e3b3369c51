// POST /tokenize, /detokenize, /apply-template (SRV-17), in llama-server's shapes.
#include "base/utf8.h"
#include "server/endpoints/endpoint.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {
namespace {

constexpr std::size_t kMaxIds = 1 << 20;

HttpReply refuse(const ApiError& error) { return error_reply(error, ErrorShape::openai); }

// The text, or the bytes of what is no text by itself.
json::Value piece_json(const std::string& bytes) {
  if (is_valid_utf8(bytes)) return bytes;
  json::Array out;
  for (const char c : bytes) out.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

HttpReply tokenize(ServerState& state, const HttpRequest& request, std::string_view) {
  auto body = parse_body(request);
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  BodyReader in(std::get<json::Value>(body));
  const std::string content = in.string("content", "");
  const bool adds_special = in.boolean("add_special", false);
  const bool parses_special = in.boolean("parse_special", true);
  const bool with_pieces = in.boolean("with_pieces", false);
  if (!in.ok()) return refuse(in.error());
  const auto pieces = state.engine.load()->tokenize(content, adds_special, parses_special);
  if (!pieces) return refuse(to_api_error(pieces.error()));
  json::Array tokens;
  for (const TokenPiece& piece : *pieces) {
    if (with_pieces)
      tokens.push_back(json::Object{{"id", piece.id}, {"piece", piece_json(piece.text)}});
    else
      tokens.push_back(piece.id);
  }
  return json_reply(json::Object{{"tokens", std::move(tokens)}});
}

HttpReply detokenize(ServerState& state, const HttpRequest& request, std::string_view) {
  auto body = parse_body(request);
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  BodyReader in(std::get<json::Value>(body));
  const json::Array* tokens = in.array("tokens");
  if (!in.ok()) return refuse(in.error());
  if (!tokens) return refuse(bad_request("tokens must be of type list", "tokens"));
  if (tokens->size() > kMaxIds)
    return refuse(bad_request("tokens must have at most 1048576 entries", "tokens"));
  std::vector<TokenId> ids;
  const std::int64_t vocab = state.engine.load()->summary().vocab;
  for (const json::Value& token : *tokens) {
    const std::int64_t* id = token.as_int();
    if (!id || *id < 0 || *id >= vocab)
      return refuse(
          bad_request("tokens must be token ids below " + std::to_string(vocab), "tokens"));
    ids.push_back(static_cast<TokenId>(*id));
  }
  return json_reply(json::Object{{"content", state.engine.load()->detokenize(ids)}});
}

HttpReply apply_template(ServerState& state, const HttpRequest& request, std::string_view) {
  auto body = parse_body(request);
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  auto plan = plan_chat_completion(state, std::get<json::Value>(body));
  if (auto* error = std::get_if<ApiError>(&plan)) return refuse(*error);
  const auto prompt = state.engine.load()->render(std::get<Plan>(plan).requests.front());
  if (!prompt) return refuse(to_api_error(prompt.error()));
  return json_reply(json::Object{{"prompt", *prompt}});
}

}  // namespace kvasir::server
