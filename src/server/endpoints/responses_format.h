// The answers of /v1/responses and their events (SRV-42).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "server/endpoints/parted_format.h"

namespace kvasir::server {

class ResponseFormat final : public PartedFormat {
 public:
  // Called once with the answer as it ended, before anything of that end is written (C33).
  using Keep = std::function<void(const json::Value& response, const ChoiceTranscript& choice)>;

  // head: the response object with its id, as it is before anything happened.
  ResponseFormat(json::Object head, Keep keep);

  ErrorShape error_shape() const noexcept override { return ErrorShape::openai; }
  void begin(const Transcript& transcript, std::string& out) override;
  void finish(const Transcript& transcript, std::string& out) override;
  void error(const ApiError& error, std::string& out) override;
  json::Value whole(const Transcript& transcript) override;

 private:
  void open_part(text::OutputKind kind, std::string& out) override;
  void add_text(text::OutputKind kind, std::string_view text, std::string& out) override;
  void close_part(text::OutputKind kind, std::string& out) override;
  void add_call(const text::ToolCall& call, std::string& out) override;

  void take_head(const Transcript& transcript);
  json::Value end_response(const Transcript& transcript, std::string& out);
  json::Object text_item(text::OutputKind kind, const char* status, bool has_part) const;
  void append_event(const char* type, json::Object fields, std::string& out);
  void append_response_event(const char* type, std::string& out);
  // Of the open item, or of its one part.
  json::Object item_fields(json::Value item) const;
  json::Object part_fields() const;

  json::Object response_;
  Keep keep_;
  json::Array output_;  // finished items
  std::string item_id_, text_;
  const char* last_status_ = "completed";  // of the item that ends the answer
  std::uint64_t n_events_ = 0;
};

}  // namespace kvasir::server
