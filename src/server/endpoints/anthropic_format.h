// Anthropic's answers (SRV-40) and their events (SRV-41).
#pragma once

#include <string>
#include <string_view>

#include "server/endpoints/parted_format.h"
#include "server/endpoints/signature.h"

namespace kvasir::server {

class AnthropicFormat final : public PartedFormat {
 public:
  explicit AnthropicFormat(const Signer& signer);  // outlives this

  ErrorShape error_shape() const noexcept override { return ErrorShape::anthropic; }
  void begin(const Transcript& transcript, std::string& out) override;
  void finish(const Transcript& transcript, std::string& out) override;
  void error(const ApiError& error, std::string& out) override;
  void keep_alive(const Transcript& transcript, std::string& out) override;
  json::Value whole(const Transcript& transcript) override;

 private:
  void open_part(text::OutputKind kind, std::string& out) override;
  void add_text(text::OutputKind kind, std::string_view text, std::string& out) override;
  void close_part(text::OutputKind kind, std::string& out) override;
  void add_call(const text::ToolCall& call, std::string& out) override;

  json::Object message(const Transcript& transcript) const;
  // content_block_…: {"type", "index", name: value}
  void append_block_event(const char* type,
                          const char* name,
                          json::Value value,
                          std::string& out) const;

  const Signer& signer_;
  std::string id_;
  json::Array content_;  // finished blocks
  std::string text_;     // of the open one
};

}  // namespace kvasir::server
