#include "server/http/exchange.h"

namespace kvasir::server {

const std::string* HttpRequest::header(std::string_view name) const noexcept {
  for (const auto& [key, value] : headers) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace kvasir::server
