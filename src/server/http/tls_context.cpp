#include "server/http/tls_context.h"

#include <openssl/ssl.h>

namespace kvasir::server {
namespace {

namespace ssl = boost::asio::ssl;

// Clients that offer protocols get the one we speak; without a common one they may go on anyway.
int choose_protocol(SSL* /*ssl*/,
                    const unsigned char** chosen,
                    unsigned char* chosen_size,
                    const unsigned char* offered,
                    unsigned offered_size,
                    void* /*context*/) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* selected = nullptr;
  const int found = SSL_select_next_proto(&selected, chosen_size, kHttp11, sizeof(kHttp11) - 1,
                                          offered, offered_size);
  *chosen = selected;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

Result<std::shared_ptr<ssl::context>> make_tls_context(const std::string& cert_path,
                                                       const std::string& key_path) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code ec;
  context->use_certificate_chain_file(cert_path, ec);
  if (ec) return io_error("cannot use the TLS certificate " + cert_path + ": " + ec.message());
  context->use_private_key_file(key_path, ssl::context::pem, ec);
  if (ec) return io_error("cannot use the TLS key " + key_path + ": " + ec.message());
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_protocol, nullptr);
  return context;
}

}  // namespace kvasir::server
