#include "server/endpoints/endpoint.h"

#include <algorithm>

#include "base/utf8.h"

namespace kvasir::server {

std::variant<json::Value, ApiError> parse_body(const HttpRequest& request) {
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
