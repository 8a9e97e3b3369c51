// The server's side of TLS: certificate, key, versions. The context is shared and constant.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/result.h"

namespace kvasir::server {

// PEM files: the certificate chain, the private key. TLS 1.2 and later; ALPN answers http/1.1.
Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_context(const std::string& cert_path,
                                                                    const std::string& key_path);

}  // namespace kvasir::server
