// Signer: signs a thinking block so that the server knows its own when it comes back (SRV-41). HMAC
// over SHA-256 with a key of this process. Immutable after construction: any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace kvasir::server {

class Signer {
 public:
  Signer();                                                              // a random key
  std::string sign(std::string_view text) const;                         // base64
  bool verify(std::string_view text, std::string_view signature) const;  // in constant time

 private:
  std::array<unsigned char, 32> key_{};
};

}  // namespace kvasir::server
