// A byte stream to one peer: a socket, TLS over one, or memory (fuzzing). One connection's strand;
// at most one operation at a time. cancel() ends the operation under way with an error.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>

#include "server/http/core.h"

namespace kvasir::server {

using Socket = asio::basic_stream_socket<asio::generic::stream_protocol, Strand>;
using Pieces = std::array<asio::const_buffer, 3>;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual Task<bool> handshake() = 0;  // false: failed
  // Bytes moved; 0: the end or an error.
  virtual Task<std::size_t> read_some(asio::mutable_buffer into) = 0;
  virtual Task<std::size_t> write_some(const Pieces& pieces) = 0;
  // Tells the peer that nothing more comes, then drops what it still sends until it closes too (or
  // cancel()): closing at once could destroy a reply in flight.
  virtual Task<void> linger() = 0;

  virtual void cancel() = 0;
  virtual void close() = 0;
  virtual bool is_peer_gone() const = 0;  // looks, without reading (SRV-7)
};

std::unique_ptr<Transport> make_plain_transport(Socket socket);
// Of a shared context: it outlives every connection.
std::unique_ptr<Transport> make_tls_transport(Socket socket,
                                              std::shared_ptr<asio::ssl::context> context);

}  // namespace kvasir::server
