// Anthropic's request (SRV-40) → what the engine is asked for. Errors name the field.
#pragma once

#include <string>
#include <vector>

#include "json/json.h"
#include "server/endpoints/openai_request.h"
#include "server/endpoints/signature.h"

namespace kvasir::server {

// system and messages as chat messages. Thinking blocks count only with our own signature.
json::Array read_anthropic_messages(BodyReader& in, const Signer& signer);

// All that shapes the prompt; count_tokens has the same.
void read_anthropic_prompt(BodyReader& in,
                           const ServerState& state,
                           GenerateRequest& out,
                           std::vector<std::string>& warnings);

// max_tokens, temperature…, stop_sequences. Returns `stream`.
bool read_anthropic_sampling(BodyReader& in, const Engine& engine, GenerateRequest& out);

}  // namespace kvasir::server
