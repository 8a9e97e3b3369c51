// The Exchange an endpoint holds: the request and the channel to its connection. When the last
// owner lets go of it without having answered, the client gets a 500 instead of silence.
#pragma once

#include <memory>
#include <utility>

#include "server/http/exchange.h"
#include "server/http/reply_channel.h"

namespace kvasir::server {

class LiveExchange final : public Exchange {
 public:
  LiveExchange(HttpRequest request, std::shared_ptr<ReplyChannel> channel)
      : request_(std::move(request)), channel_(std::move(channel)) {}
  ~LiveExchange() override { channel_->abandon(); }

  const HttpRequest& request() const noexcept override { return request_; }
  void reply(HttpReply r) override { channel_->reply(std::move(r)); }
  void begin_stream(HttpReply head) override { channel_->begin_stream(std::move(head)); }
  void write(std::string bytes) override { channel_->write(std::move(bytes)); }
  void end() override { channel_->end(); }
  void abort() override { channel_->abort(); }
  std::size_t pending_bytes() const noexcept override { return channel_->pending_bytes(); }
  bool is_closed() const noexcept override { return channel_->is_closed(); }
  void on_peer_gone(std::function<void()> callback) override {
    channel_->on_peer_gone(std::move(callback));
  }
  void on_drained(std::function<void()> callback) override {
    channel_->on_drained(std::move(callback));
  }
  void post(std::function<void()> action) override { channel_->post(std::move(action)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> action) override {
    channel_->post_after(delay, std::move(action));
  }

 private:
  const HttpRequest request_;
  const std::shared_ptr<ReplyChannel> channel_;  // co-owner: the connection, while it sends
};

}  // namespace kvasir::server
