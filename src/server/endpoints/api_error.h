// Errors as the APIs show them (SRV-3): status, code, type, message, and the three body shapes.
// Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "contract/outcome.h"
#include "json/json.h"
#include "server/http/exchange.h"

namespace kvasir::server {

struct ApiError {
  int status = 400;
  std::string code = "invalid_request";
  std::string message;
  std::string type;   // empty: the status's usual one
  std::string param;  // the field that is wrong; empty: none
  std::uint32_t retry_after_s = 0;
};

enum class ErrorShape : std::uint8_t { openai, anthropic, ollama };

ApiError bad_request(std::string message, std::string param = {});
// What the engine or the library refused before anything ran.
ApiError to_api_error(const Error& error);
// How a request ended without an answer. `engine_closed` and a deadline while waiting included.
ApiError to_api_error(const Outcome& outcome);

json::Value error_body(const ApiError& error, ErrorShape shape);
HttpReply error_reply(const ApiError& error, ErrorShape shape);

}  // namespace kvasir::server
