// Ollama's answers: one JSON object a line while they stream.
#pragma once

#include <string>

#include "server/endpoints/api_format.h"

namespace kvasir::server {

enum class OllamaShape : std::uint8_t {
  chat,     // {"message": {"role", "content"…}}
  generate  // {"response"…}
};

class OllamaFormat final : public ApiFormat {
 public:
  // is_load: the one object says that the model is ready.
  OllamaFormat(OllamaShape shape, bool is_load) : shape_(shape), is_load_(is_load) {}

  ErrorShape error_shape() const noexcept override { return ErrorShape::ollama; }
  std::string_view stream_type() const noexcept override { return "application/x-ndjson"; }
  void begin(const Transcript& transcript, std::string& out) override;
  void event(const Transcript& transcript, const StreamEvent& event, std::string& out) override;
  void finish(const Transcript& transcript, std::string& out) override;
  void error(const ApiError& error, std::string& out) override;
  void keep_alive(const Transcript& transcript, std::string& out) override;
  json::Value whole(const Transcript& transcript) override;

 private:
  struct Parts {
    std::string content, thinking;
    json::Array tool_calls;
  };
  json::Object object_of(const Transcript& transcript, Parts parts) const;
  json::Object last_object(const Transcript& transcript, Parts parts) const;

  OllamaShape shape_;
  bool is_load_;
};

std::string rfc3339(std::int64_t unix_s);  // "2024-05-01T12:00:00Z"

}  // namespace kvasir::server
