// ApiFormat: how one API writes an answer, streamed and whole. Pure: from transcript and events to
// bytes; the job does the waiting, the sending and the counting. One object serves one request.
// Adding an API is one such class, its request parser and one line in routes.cpp.
#pragma once

#include <string>
#include <string_view>

#include "json/json.h"
#include "server/endpoints/api_error.h"
#include "server/endpoints/transcript.h"

namespace kvasir::server {

class ApiFormat {
 public:
  virtual ~ApiFormat() = default;
  virtual ErrorShape error_shape() const noexcept = 0;
  virtual std::string_view stream_type() const noexcept { return "text/event-stream"; }

  // Appended to `out`, in this order: begin once, event for each piece of news (its part of the
  // transcript is already up to date), finish once when every choice has ended; or error, last.
  virtual void begin(const Transcript& transcript, std::string& out) = 0;
  virtual void event(const Transcript& transcript, const StreamEvent& event, std::string& out) = 0;
  virtual void finish(const Transcript& transcript, std::string& out) = 0;
  virtual void error(const ApiError& error, std::string& out) = 0;
  // While the prompt is fed (SRV-33).
  virtual void keep_alive(const Transcript& transcript, std::string& out) {
    out += ": keepalive " + std::to_string(transcript.n_fed) + "/" +
           std::to_string(transcript.n_prompt) + "\n\n";
  }

  virtual json::Value whole(const Transcript& transcript) = 0;
};

}  // namespace kvasir::server
