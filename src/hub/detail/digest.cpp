#include "hub/detail/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace kvasir::hub {
namespace {

constexpr std::size_t kSha256Digits = 64, kSha1Digits = 40;

EVP_MD_CTX* context_of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

bool is_blob_id(std::string_view id) noexcept {
  return (id.size() == kSha256Digits || id.size() == kSha1Digits) &&
         std::all_of(id.begin(), id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

void Digest::Free::operator()(void* context) const noexcept {
  EVP_MD_CTX_free(context_of(context));
}

Digest::Digest(std::string_view id, std::uint64_t size_bytes) : context_(EVP_MD_CTX_new()) {
  KVASIR_CHECK(is_blob_id(id));
  const bool is_git = id.size() == kSha1Digits;
  KVASIR_CHECK(context_ && EVP_DigestInit_ex(context_of(context_.get()),
                                             is_git ? EVP_sha1() : EVP_sha256(), nullptr) == 1)
      << "the digest is not available";
  if (!is_git) return;
  std::string header = "blob " + std::to_string(size_bytes);
  header.push_back('\0');
  update(std::as_bytes(std::span(header)));
}

void Digest::update(std::span<const std::byte> bytes) {
  KVASIR_CHECK(EVP_DigestUpdate(context_of(context_.get()), bytes.data(), bytes.size()) == 1);
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw = {};
  unsigned n = 0;
  KVASIR_CHECK(EVP_DigestFinal_ex(context_of(context_.get()), raw.data(), &n) == 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < n; ++i) {
    out.push_back(kDigits[raw[i] >> 4]);
    out.push_back(kDigits[raw[i] & 15]);
  }
  return out;
}

}  // namespace kvasir::hub
