// GET /, /chat and /assets/NAME: the web chat (SRV-22, SRV-70).
#include <algorithm>

#include "server/endpoints/endpoint.h"
#include "server/web/assets.h"

namespace kvasir::server {
namespace {

constexpr const char* kPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src "
    "'none'";

HttpReply send_asset(const HttpRequest& request, std::string_view name) {
  const auto all = assets();
  const auto asset =
      std::find_if(all.begin(), all.end(), [&](const Asset& a) { return a.name == name; });
  if (asset == all.end()) {
    ApiError error = bad_request("no such file");
    error.status = 404;
    error.code = "not_found";
    return error_reply(error, ErrorShape::openai);
  }
  HttpReply reply;
  reply.content_type = std::string(asset->content_type);
  reply.headers = {{"Content-Security-Policy", kPolicy},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cache-Control", "no-cache"},
                   {"ETag", std::string(asset->etag)}};
  const std::string* known = request.header("if-none-match");
  if (known && *known == asset->etag)
    reply.status = 304;
  else
    reply.body = std::string(asset->content);
  return reply;
}

}  // namespace

HttpReply web_chat(ServerState&, const HttpRequest& request, std::string_view) {
  return send_asset(request, "index.html");
}

HttpReply web_asset(ServerState&, const HttpRequest& request, std::string_view name) {
  return send_asset(request, name);
}

}  // namespace kvasir::server
