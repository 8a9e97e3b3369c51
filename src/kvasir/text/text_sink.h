// TextSink: a row's tokens → text, reasoning and tool calls, handed to the generation's listener.
// One sink a choice; the listener is shared by a request's choices.
#pragma once

#include <cstdint>
#include <memory>

#include "contract/sink.h"
#include "kvasir/generation.h"
#include "text/output_parser.h"

namespace kvasir {

class TextSink final : public Sink {
 public:
  TextSink(std::uint32_t choice,
           text::OutputParser parser,
           std::shared_ptr<GenerationListener> listener);

  Result<SinkReply> commit(std::span<const TokenId> tokens,
                           std::span<const Logprobs> logprobs) override;
  Status commit_prompt(std::span<const Logprobs> logprobs) override;
  void queued() noexcept override { listener_->on_queued(); }
  void progress(std::uint64_t fed, std::uint64_t total) noexcept override;
  bool is_paused() const noexcept override { return listener_->is_paused(); }
  void finish(Outcome outcome) noexcept override;

 private:
  std::uint32_t choice_;
  text::OutputParser parser_;
  std::shared_ptr<GenerationListener> listener_;  // shared by the choices and their consumer
};

}  // namespace kvasir
