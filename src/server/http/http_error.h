// A refusal made by the HTTP layer itself (SRV-3), and its OpenAI form. Values; any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/http/exchange.h"

namespace kvasir::server {

struct HttpError {
  int status = 400;
  std::string_view code;  // a literal: "invalid_api_key"
  std::string message;
};

// {"error": {"message", "type", "code", "param": null}}; `path` does not matter to this shape.
HttpReply openai_error(std::string_view path, const HttpError& error);

// "Not Found"; "Unknown" of a number we do not know.
std::string_view reason_phrase(int status) noexcept;

}  // namespace kvasir::server
