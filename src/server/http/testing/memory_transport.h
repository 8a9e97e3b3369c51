// A connection's transport in memory: gives out bytes in steps, swallows replies. Its peer may
// leave once it has sent them all. For fuzz targets.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "server/http/connection.h"

namespace kvasir::server {

class MemoryTransport : public Transport {
 public:
  MemoryTransport(std::string bytes, std::size_t step, bool leaves = false)
      : bytes_(std::move(bytes)), step_(step), leaves_(leaves) {}

  Task<bool> handshake() override { co_return true; }
  Task<std::size_t> read_some(asio::mutable_buffer into) override {
    const std::size_t n = asio::buffer_copy(into, asio::buffer(bytes_), step_);
    bytes_.erase(0, n);
    co_return n;
  }
  Task<std::size_t> write_some(const Pieces& pieces) override {
    co_return std::min(asio::buffer_size(pieces), std::size_t{97});
  }
  Task<void> linger() override { co_return; }
  void cancel() override {}
  void close() override { bytes_.clear(); }
  bool is_peer_gone() const override { return leaves_ && bytes_.empty(); }

 private:
  std::string bytes_;
  std::size_t step_;
  bool leaves_;
};

}  // namespace kvasir::server
