// Which endpoint answers which path (routes.cpp).
#pragma once

#include <memory>
#include <string_view>

#include "server/endpoints/api_error.h"
#include "server/http/exchange.h"

namespace kvasir::server {

struct ServerState;

// On an I/O thread. Every exchange gets its answer from here or from what this starts.
void dispatch(ServerState& state, const std::shared_ptr<Exchange>& exchange);

// The error body that clients of this path understand.
ErrorShape error_shape_of(std::string_view path) noexcept;

}  // namespace kvasir::server
