// GET /downloads; POST /admin/downloads {"repo", "include", "exclude"} and DELETE
// /admin/downloads/{id}: fetching models into the hub cache (SRV-20, SRV-80).
#include "hub/downloads.h"

#include <charconv>

#include "server/endpoints/endpoint.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {
namespace {

HttpReply no_downloads() {
  ApiError error = bad_request("this server has no hub cache to download into");
  error.status = 501;
  error.code = "unsupported_request";
  return error_reply(error, ErrorShape::openai);
}

}  // namespace

HttpReply downloads(ServerState& state, const HttpRequest&, std::string_view) {
  if (!state.downloads) return json_reply(json::Object{{"downloads", json::Array{}}});
  return json_reply(hub::to_json(state.downloads->list()));
}

HttpReply admin_download(ServerState& state, const HttpRequest& request, std::string_view) {
  if (!state.downloads) return no_downloads();
  auto body = parse_body(request);
  if (auto* error = std::get_if<ApiError>(&body)) return error_reply(*error, ErrorShape::openai);
  BodyReader in(std::get<json::Value>(body));
  hub::Downloads::Wanted wanted;
  wanted.repo = in.string("repo", "");
  wanted.include = in.strings("include");
  wanted.exclude = in.strings("exclude");
  if (!in.ok()) return error_reply(in.error(), ErrorShape::openai);
  const auto id = state.downloads->start(wanted);
  if (!id) return error_reply(to_api_error(id.error()), ErrorShape::openai);
  return json_reply(json::Object{{"id", *id}}, 202);
}

HttpReply admin_cancel_download(ServerState& state, const HttpRequest&, std::string_view text) {
  if (!state.downloads) return no_downloads();
  std::uint64_t id = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_number = failed == std::errc() && end == text.data() + text.size();
  const Status cancelled =
      is_number ? state.downloads->cancel(id) : Status(not_found("no such download"));
  if (!cancelled) return error_reply(to_api_error(cancelled.error()), ErrorShape::openai);
  return json_reply(json::Object{{"cancelled", true}});
}

}  // namespace kvasir::server
