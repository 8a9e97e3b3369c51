#include "server/endpoints/api_error.h"

#include <array>
#include <string_view>
#include <utility>

namespace kvasir::server {
namespace {

constexpr std::uint32_t kRetrySeconds = 1;

struct CodeStatus {
  std::string_view code;
  int status;
};

// SRV-3's table; what is not here is a 500.
constexpr std::array kStatuses{CodeStatus{"context_over_budget", 400},
                               CodeStatus{"context_length_exceeded", 400},
                               CodeStatus{"invalid_request", 400},
                               CodeStatus{"unsupported_schema", 400},
                               CodeStatus{"queue_full", 429},
                               CodeStatus{"unsupported_request", 501},
                               CodeStatus{"engine_closed", 503},
                               CodeStatus{"queue_timeout", 503},
                               CodeStatus{"loading", 503}};

int status_of(std::string_view code) {
  for (const CodeStatus& known : kStatuses) {
    if (known.code == code) return known.status;
  }
  return 500;
}

std::string_view openai_type(const ApiError& error) {
  if (!error.type.empty()) return error.type;
  if (error.code == "context_over_budget") return "memory_admission";
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return error.status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError bad_request(std::string message, std::string param) {
  ApiError error;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

ApiError to_api_error(const Error& error) {
  ApiError out;
  out.message = error.what;
  if (!error.id.empty()) {
    out.code = std::string(error.id);
    out.status = status_of(error.id);
  } else if (error.code == Errc::device || error.code == Errc::io) {
    out.code = "engine_failed";
    out.status = 500;
  } else if (error.code == Errc::not_found) {
    out.code = "not_found";
    out.status = 404;
  }
  if (out.status == 429 || out.status == 503) out.retry_after_s = kRetrySeconds;
  return out;
}

ApiError to_api_error(const Outcome& outcome) {
  if (const Failed* failed = outcome.failed()) {
    ApiError out;
    out.code = failed->code;
    out.message = failed->message;
    out.status = status_of(failed->code);
    if (out.status == 429 || out.status == 503) out.retry_after_s = kRetrySeconds;
    return out;
  }
  ApiError out;
  out.status = 503;
  out.code = "engine_closed";
  out.message = "the server is shutting down";
  out.retry_after_s = kRetrySeconds;
  return out;
}

json::Value error_body(const ApiError& error, ErrorShape shape) {
  if (shape == ErrorShape::ollama) return json::Object{{"error", error.message}};
  if (shape == ErrorShape::anthropic) {
    return json::Object{
        {"type", "error"},
        {"error", json::Object{{"type", anthropic_type(error)}, {"message", error.message}}}};
  }
  const json::Value param = error.param.empty() ? json::Value() : json::Value(error.param);
  return json::Object{{"error", json::Object{{"message", error.message},
                                             {"type", openai_type(error)},
                                             {"code", error.code},
                                             {"param", param}}}};
}

HttpReply error_reply(const ApiError& error, ErrorShape shape) {
  HttpReply reply;
  reply.status = error.status;
  reply.body = json::write(error_body(error, shape));
  if (error.retry_after_s > 0)
    reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  return reply;
}

}  // namespace kvasir::server
