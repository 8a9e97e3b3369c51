// Ollama's requests → what the engine is asked for. Errors name the field.
#pragma once

#include <string>
#include <vector>

#include "json/json.h"
#include "server/endpoints/openai_request.h"

namespace kvasir::server {

struct OllamaRequest {
  GenerateRequest generate;
  bool is_load = false;  // nothing is asked: is the model ready?
  bool stream = true;
};

OllamaRequest read_ollama_chat(BodyReader& in,
                               const ServerState& state,
                               std::vector<std::string>& warnings);
OllamaRequest read_ollama_generate(BodyReader& in,
                                   const ServerState& state,
                                   std::vector<std::string>& warnings);

// Ollama's messages in OpenAI's shape. Its calls have no ids: they get some, and results take that
// of the first call of their name that has none yet.
json::Array read_ollama_messages(BodyReader& in, const json::Array& messages);

}  // namespace kvasir::server
