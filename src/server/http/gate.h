// Everything that is decided about a request from its head alone, in order: Host, preflight,
// foreign pages, keys. Immutable; any thread.
#pragma once

#include <optional>
#include <string>

#include "server/http/auth.h"
#include "server/http/cors.h"
#include "server/http/host_check.h"
#include "server/http/options.h"

namespace kvasir::server {

class Gate {
 public:
  explicit Gate(const HttpOptions& options);

  // CORS headers of every reply to this request, errors and streams included.
  Headers reply_headers(const HttpRequest& request) const { return cors_.reply_headers(request); }

  // A reply: the request is answered with it, its body unread (refusals, preflights). `minor`:
  // HTTP/1.minor. `through_loopback`: it came by a TCP listener bound to a loopback address.
  std::optional<HttpReply> judge(const HttpRequest& request,
                                 int minor,
                                 bool through_loopback) const;

 private:
  std::optional<HttpError> refuse(const HttpRequest& request,
                                  int minor,
                                  bool through_loopback) const;
  std::optional<HttpError> refuse_foreign(const HttpRequest& request) const;

  std::string bind_name_;
  Auth auth_;
  Cors cors_;
  ErrorWriter write_error_;
};

}  // namespace kvasir::server
