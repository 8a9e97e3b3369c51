// SRV-6: x-request-id. Any thread.
#pragma once

#include <string>

namespace kvasir::server {

// The client's id when it is 1 to 128 visible ASCII characters, else a new one ("req_" and 24
// random hexadecimal digits). null: the client sent none.
std::string choose_request_id(const std::string* sent);

}  // namespace kvasir::server
