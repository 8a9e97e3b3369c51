// The request of /v1/responses (SRV-42) → what the engine is asked for, and what the answer repeats
// of it. Errors name the field.
#pragma once

#include <string>
#include <vector>

#include "json/json.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {

// `input` behind `conversation`, as chat messages. Calls and reasoning join the assistant's message
// that they belong to.
json::Array read_response_input(BodyReader& in, json::Array conversation);

struct ResponseRequest {
  GenerateRequest generate;
  json::Array conversation;  // what is stored: without instructions, which are not carried over
  json::Object head;         // the response object before anything happened; no id, time or model
  bool is_stored = true;
  bool stream = false;
};

ResponseRequest read_response_request(BodyReader& in,
                                      ServerState& state,
                                      std::vector<std::string>& warnings);

ApiError response_not_found(std::string_view id);

}  // namespace kvasir::server
