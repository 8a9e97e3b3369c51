#include "server/http/gate.h"

namespace kvasir::server {
namespace {

// A Host header's name comes without the brackets of an IPv6 literal (HostPort).
std::string without_brackets(const std::string& name) {
  const bool has_brackets = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return has_brackets ? name.substr(1, name.size() - 2) : name;
}

}  // namespace

Gate::Gate(const HttpOptions& options)
    : bind_name_(without_brackets(options.host)),
      auth_(options.api_keys, options.admin_key, options.open_paths),
      cors_(options.allowed_origins),
      write_error_(options.write_error) {}

std::optional<HttpReply> Gate::judge(const HttpRequest& request,
                                     int minor,
                                     bool through_loopback) const {
  const std::optional<HttpError> error = refuse(request, minor, through_loopback);
  if (!error && request.method == "OPTIONS") return cors_.preflight(request);
  if (!error) return std::nullopt;
  HttpReply reply = write_error_(request.path, *error);
  if (error->status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

std::optional<HttpError> Gate::refuse(const HttpRequest& request,
                                      int minor,
                                      bool through_loopback) const {
  if (auto error = check_host(request, minor, {through_loopback, bind_name_})) return error;
  if (auto error = refuse_foreign(request)) return error;
  if (request.method == "OPTIONS") return std::nullopt;  // a preflight never carries the key
  return auth_.refuse(request);
}

// Administration is not for other sites' pages, whatever --allowed-origins says.
std::optional<HttpError> Gate::refuse_foreign(const HttpRequest& request) const {
  const std::string* wanted = request.header("access-control-request-method");
  const bool is_preflight = request.method == "OPTIONS";
  const std::string method = is_preflight && wanted ? *wanted : request.method;
  if (!is_admin_request(method, request.path)) return std::nullopt;
  const std::string* origin = request.header("origin");
  if (origin && is_foreign_origin(*origin, request.header("host"))) {
    return HttpError{403, "origin_not_allowed", "this request is not open to other sites' pages"};
  }
  if (!is_preflight && !auth_.has_admin_key() && may_be_rebound(request, bind_name_)) {
    return HttpError{403, "host_not_allowed", "this request needs a local Host name"};
  }
  return std::nullopt;
}

}  // namespace kvasir::server
