// The server as a whole: TLS, unix sockets, many connections, its end.
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "server/http/testing/test_client.h"

namespace kvasir::server {
namespace {

using namespace std::chrono_literals;
using testing::echo;
using testing::get;
using testing::post;
using testing::run_server;
using testing::test_options;
using testing::TestClient;
using testing::TestReply;
using testing::within;

class Server : public ::testing::Test {
 protected:
  Server() {
    log::set_level(log::Level::warning);
    std::string pattern = (std::filesystem::temp_directory_path() / "kvasir-http-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
  }
  ~Server() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path dir_;
};

// A self-signed certificate for localhost, and its key.
void write_certificate(const std::string& cert_path, const std::string& key_path) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509_sign(cert, key, EVP_sha256());
  std::FILE* file = std::fopen(cert_path.c_str(), "w");
  PEM_write_X509(file, cert);
  std::fclose(file);
  file = std::fopen(key_path.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(cert);
  EVP_PKEY_free(key);
}

// Blocking TLS over a TestClient's socket.
class TlsClient {
 public:
  explicit TlsClient(int fd, int max_version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_)) {
    SSL_set_min_proto_version(ssl_, 0);
    SSL_set_max_proto_version(ssl_, max_version);
    SSL_set_fd(ssl_, fd);
    is_connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  bool is_connected() const { return is_connected_; }
  void send(const std::string& bytes) {
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  // Until `mark` or the end; whether that was a proper one is in *clean.
  std::string read_until(std::string_view mark, bool* clean = nullptr) {
    std::string out;
    char buffer[4096];
    while (out.find(mark) == std::string::npos) {
      const int n = SSL_read(ssl_, buffer, sizeof(buffer));
      if (n <= 0) {
        if (clean) *clean = SSL_get_error(ssl_, n) == SSL_ERROR_ZERO_RETURN;
        break;
      }
      out.append(buffer, static_cast<std::size_t>(n));
    }
    return out;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  bool is_connected_ = false;
};

HttpOptions tls_options(const std::filesystem::path& dir) {
  HttpOptions options = test_options();
  options.tls_cert = dir / "cert.pem";
  options.tls_key = dir / "key.pem";
  write_certificate(options.tls_cert, options.tls_key);
  return options;
}

TEST_F(Server, SpeaksTlsAndEndsItProperly) {
  const auto server = run_server(tls_options(dir_), echo);
  TestClient tcp(server->port());
  TlsClient tls(tcp.fd());

  ASSERT_TRUE(tls.is_connected());
  EXPECT_EQ(server->url(), "https://127.0.0.1:" + std::to_string(server->port()));
  tls.send(get("/one") + get("/two"));
  EXPECT_NE(tls.read_until("GET /two? ").find("GET /one? "), std::string::npos);
  tls.send(post("/three", std::string(200'000, 'b'), "Connection: close\r\n"));
  bool clean = false;
  EXPECT_GT(tls.read_until("never", &clean).size(), 200'000u);
  EXPECT_TRUE(clean);
}

TEST_F(Server, RefusesOldTlsAndPlainText) {
  HttpOptions options = tls_options(dir_);
  options.timeouts.handshake = 100ms;
  const auto server = run_server(options, echo);

  TestClient old(server->port());
  EXPECT_FALSE(TlsClient(old.fd(), TLS1_1_VERSION).is_connected());
  TestClient plain(server->port());
  EXPECT_EQ(plain.ask(get("/")).status, 0);
  EXPECT_TRUE(TestClient(server->port()).is_closed_within(1s)) << "a handshake that never comes";
}

TEST_F(Server, NoticesATlsPeerThatLeft) {
  std::atomic<bool> asked{false};
  std::atomic<bool> gone{false};
  std::shared_ptr<Exchange> kept;
  const auto server = run_server(tls_options(dir_), [&](std::shared_ptr<Exchange> exchange) {
    exchange->on_peer_gone([&] { gone = true; });
    kept = std::move(exchange);
    asked = true;
  });
  TestClient tcp(server->port());
  TlsClient tls(tcp.fd());
  tls.send(get("/"));
  ASSERT_TRUE(within(1s, [&] { return asked.load(); }));
  tcp.close();
  EXPECT_TRUE(within(400ms, [&] { return gone.load(); }));
  server->stop();
}

TEST_F(Server, RefusesABadCertificate) {
  HttpOptions options = test_options();
  options.tls_cert = dir_ / "none.pem";
  EXPECT_FALSE(HttpServer::listen(options, echo));
  options.tls_key = dir_ / "none.pem";
  const auto server = HttpServer::listen(options, echo);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().what.find("none.pem"), std::string::npos);
}

TEST_F(Server, ServesAPrivateUnixSocketAndReplacesAStaleOne) {
  HttpOptions options = test_options();
  options.host = "";
  options.unix_path = dir_ / "sock";
  {  // left behind by a server that died
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, options.unix_path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
  }
  std::atomic<bool> loopback{false};
  auto server = run_server(options, [&](const std::shared_ptr<Exchange>& exchange) {
    loopback = exchange->request().peer_is_loopback;
    echo(exchange);
  });

  struct stat info {};
  ASSERT_EQ(::stat(options.unix_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(server->url(), "unix:" + options.unix_path);
  TestClient c(options.unix_path);
  EXPECT_EQ(c.ask("GET /x HTTP/1.1\r\nHost: anything\r\n\r\n").body, "GET /x? ");
  EXPECT_TRUE(loopback);
  EXPECT_FALSE(HttpServer::listen(options, echo)) << "somebody answers there";
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(options.unix_path));
}

TEST_F(Server, NeverReplacesAFileThatIsNoSocket) {
  HttpOptions options = test_options();
  options.unix_path = dir_ / "precious";
  std::fclose(std::fopen(options.unix_path.c_str(), "w"));
  EXPECT_FALSE(HttpServer::listen(options, echo));
  EXPECT_TRUE(std::filesystem::exists(options.unix_path));
}

TEST_F(Server, SaysWhyItCannotListen) {
  const auto first = run_server(test_options(), echo);
  HttpOptions options = test_options();
  options.port = first->port();
  const auto second = HttpServer::listen(options, echo);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().what.find(std::to_string(first->port())), std::string::npos);
}

TEST_F(Server, HoldsThousandsOfIdleConnections) {
  constexpr std::size_t kConnections = 2000;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * kConnections + 200);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2 * kConnections + 200) GTEST_SKIP() << "too few file descriptors";
  const auto server = run_server(test_options(), echo);

  std::vector<TestClient> clients;
  for (std::size_t i = 0; i < kConnections; ++i) {
    clients.emplace_back(server->port());
    ASSERT_TRUE(clients.back().is_connected()) << i;
  }
  ASSERT_TRUE(within(10s, [&] { return server->n_connections() == kConnections; }));
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < kConnections; i += 100) {
    EXPECT_EQ(clients[i].ask(get("/")).status, 200);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
}

TEST_F(Server, AcceptsNoMoreConnectionsThanItsBound) {
  HttpOptions options = test_options();
  options.max_connections = 2;
  const auto server = run_server(options, echo);
  TestClient a(server->port());
  TestClient b(server->port());
  EXPECT_EQ(a.ask(get("/")).status, 200);
  EXPECT_EQ(b.ask(get("/")).status, 200);
  TestClient waits(server->port());
  waits.send(get("/"));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(server->n_connections(), 2u);
  a.close();
  EXPECT_EQ(waits.read_reply().status, 200);
}

TEST_F(Server, DrainsGracefully) {
  std::mutex mutex;
  std::shared_ptr<Exchange> running;
  const auto server = run_server(test_options(), [&](std::shared_ptr<Exchange> exchange) {
    if (exchange->request().path != "/running") return echo(exchange);
    std::scoped_lock lock(mutex);
    running = std::move(exchange);
  });
  TestClient idle(server->port());
  EXPECT_EQ(idle.ask(get("/")).status, 200);
  TestClient busy(server->port());
  busy.send(get("/running"));
  ASSERT_TRUE(within(1s, [&] {
    std::scoped_lock lock(mutex);
    return running != nullptr;
  }));

  server->stop_accepting();

  EXPECT_TRUE(idle.is_closed_within(1s));
  EXPECT_TRUE(within(1s, [&] { return !TestClient(server->port()).is_connected(); }));
  EXPECT_TRUE(within(1s, [&] { return server->n_connections() == 1; }));
  running->reply({.body = "done"});
  const TestReply reply = busy.read_reply();
  EXPECT_EQ(reply.body, "done");
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(busy.is_closed_within(1s));
  busy.close();
  EXPECT_TRUE(within(1s, [&] { return server->n_connections() == 0; }));
}

TEST_F(Server, StopTellsRunningExchangesAndOutlivesTheirOwners) {
  std::atomic<bool> gone{false};
  std::mutex mutex;
  std::shared_ptr<Exchange> kept;
  auto server = run_server(test_options(), [&](std::shared_ptr<Exchange> exchange) {
    exchange->on_peer_gone([&] { gone = true; });
    exchange->post_after(1h, [exchange] { exchange->end(); });
    exchange->begin_stream({});
    std::scoped_lock lock(mutex);
    kept = std::move(exchange);
  });
  TestClient c(server->port());
  c.send(get("/"));
  ASSERT_TRUE(within(1s, [&] {
    std::scoped_lock lock(mutex);
    return kept != nullptr;
  }));
  const std::weak_ptr<Exchange> watch = kept;

  server.reset();

  EXPECT_TRUE(gone);
  EXPECT_TRUE(kept->is_closed());
  kept->post([kept] { FAIL() << "no thread is left"; });
  kept->write("late");
  kept.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(Server, ServesManyClientsFromManyThreads) {
  HttpOptions options = test_options();
  options.n_threads = 4;
  const auto server = run_server(options, [](const std::shared_ptr<Exchange>& exchange) {
    std::thread([exchange] {  // as the engine does
      exchange->begin_stream({.body = "a"});
      for (int i = 0; i < 20; ++i) exchange->write("b");
      exchange->end();
    })
        .detach();
  });
  std::atomic<int> n_good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      TestClient c(server->port());
      for (int i = 0; i < 50; ++i) n_good += c.ask(get("/")).body == "a" + std::string(20, 'b');
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_good, 400);
}

}  // namespace
}  // namespace kvasir::server
