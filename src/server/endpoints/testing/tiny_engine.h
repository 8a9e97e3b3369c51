// For tests of request parsers: a ServerState over an open model that is small enough for a unit
// test, with one token a byte and a chat template.
#pragma once

#include <string>
#include <string_view>

#include "server/endpoints/endpoint.h"

namespace kvasir::server {

// Opened once a process. Its template shows roles, reasoning, calls and tool names, and refuses two
// turns of the user in a row.
Engine& tiny_engine();

struct TinyState {
  ServerState state;
  TinyState();
  ~TinyState();
};

json::Value parsed(std::string_view text);
// The one request of a plan. A refused body ends the test program.
GenerateRequest request_of(PlanFn plan, ServerState& state, std::string_view body);
// The error of a refused body; "accepted" as the message when it was not.
ApiError refusal_of(PlanFn plan, ServerState& state, std::string_view body);
// Answers as a job would do it, without HTTP: a whole body, or a stream's bytes.
std::string run_plan(PlanFn plan, ServerState& state, std::string_view body);

HttpRequest post_of(std::string_view body);

}  // namespace kvasir::server
