// What plain and TLS transports have in common: the socket underneath.
#pragma once

#include <utility>

#include "server/http/transport.h"

namespace kvasir::server {

// The peer closed its side, or the connection broke (SRV-7). Unread bytes do not hide it. A peer
// that only shut down its sending side looks the same: it too is taken for gone.
bool is_hung_up(int fd) noexcept;

// Reads and drops until the end; the kernel's FIN must be on its way already.
Task<void> discard_rest(Socket& socket);

}  // namespace kvasir::server
