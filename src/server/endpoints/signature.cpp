#include "server/endpoints/signature.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace kvasir::server {

Signer::Signer() {
  const int done = RAND_bytes(key_.data(), static_cast<int>(key_.size()));
  KVASIR_CHECK(done == 1) << "the system has no random numbers";
}

std::string Signer::sign(std::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned n_mac = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &n_mac);
  std::string out(4 * ((n_mac + 2) / 3), '\0');
  // Writes a NUL behind the text, where std::string has one.
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), mac.data(),
                  static_cast<int>(n_mac));
  return out;
}

bool Signer::verify(std::string_view text, std::string_view signature) const {
  const std::string right = sign(text);
  return right.size() == signature.size() &&
         CRYPTO_memcmp(right.data(), signature.data(), right.size()) == 0;
}

}  // namespace kvasir::server
