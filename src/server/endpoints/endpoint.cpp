#include "server/endpoints/endpoint.h"

#include <algorithm>

#include "base/utf8.h"
#include "server/http/ascii.h"

namespace kvasir::server {

namespace {

// What is no text of this server's APIs (SRV-3). `curl -d` names a form and sends JSON.
std::optional<ApiError> refuse_media(const HttpRequest& request) {
  ApiError error;
  error.status = 415;
  error.code = "unsupported_media_type";
  const std::string* encoding = request.header("content-encoding");
  if (encoding && *encoding != "identity") {
    error.message = "bodies with Content-Encoding " + *encoding + " are not taken";
    return error;
  }
  const std::string* given = request.header("content-type");
  const std::string type = given ? to_lower(*given) : std::string();
  for (const char* other : {"multipart/", "image/", "audio/", "video/"}) {
    if (!type.starts_with(other)) continue;
    error.message = "the body must be JSON, not " + *given;
    return error;
  }
  return std::nullopt;
}

}  // namespace

std::variant<json::Value, ApiError> parse_body(const HttpRequest& request) {
  if (auto refusal = refuse_media(request)) return *std::move(refusal);
  if (!is_valid_utf8(request.body))
    return bad_request("Invalid JSON in request body: the text is not UTF-8");
  auto body = json::parse(request.body);
  if (!body) return bad_request("Invalid JSON in request body: " + body.error().what);
  if (!body->is_object()) return bad_request("Request should be a JSON object");
  return *std::move(body);
}

HttpReply json_reply(const json::Value& value, int status) {
  HttpReply reply;
  reply.status = status;
  reply.body = json::write(value);
  return reply;
}

std::variant<std::string, ApiError> echoed_model(const ServerState& state,
                                                 const json::Value& body) {
  const std::string served = state.served_id();
  const json::Value* field = body.find("model");
  if (!field || field->is_null()) return served;
  const std::string* name = field->as_string();
  if (!name) return bad_request("model must be of type str", "model");
  if (!state.options.strict_model || *name == served || *name == "default_model") return *name;
  const auto& aliases = state.options.aliases;
  if (std::find(aliases.begin(), aliases.end(), *name) != aliases.end()) return *name;
  ApiError error =
      bad_request("the model '" + *name + "' is not served here; this is " + served, "model");
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

}  // namespace kvasir::server
