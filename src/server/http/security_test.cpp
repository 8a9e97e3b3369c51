// SRV-4, SRV-5, SRV-6 and C35 without sockets.
#include <gtest/gtest.h>

#include "json/json.h"
#include "server/http/gate.h"
#include "server/http/request_id.h"
#include "server/http/target.h"

namespace kvasir::server {
namespace {

HttpRequest request(std::string method, std::string path, Headers headers = {}) {
  HttpRequest r;
  r.method = std::move(method);
  r.path = std::move(path);
  r.headers = std::move(headers);
  if (!r.header("host")) r.headers.emplace_back("host", "localhost:8080");
  r.peer_is_loopback = true;
  return r;
}

HttpRequest from_afar(HttpRequest r) {
  r.peer_is_loopback = false;
  return r;
}

int status_of(const HttpOptions& options, const HttpRequest& r, bool through_loopback = true) {
  const auto reply = Gate(options).judge(r, 1, through_loopback);
  return reply ? reply->status : 200;
}

std::string header_of(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

HttpOptions with_keys() {
  HttpOptions options;
  options.api_keys = {"alpha", "beta"};
  return options;
}

TEST(Auth, WithoutAKeyEverythingIsOpen) {
  EXPECT_EQ(status_of({}, request("POST", "/v1/chat/completions")), 200);
}

TEST(Auth, AcceptsAnyKeyByBearerOrXApiKey) {
  const auto options = with_keys();
  const std::string path = "/v1/models";
  EXPECT_EQ(status_of(options, request("GET", path, {{"authorization", "Bearer alpha"}})), 200);
  EXPECT_EQ(status_of(options, request("GET", path, {{"authorization", "bearer  beta"}})), 200);
  EXPECT_EQ(status_of(options, request("GET", path, {{"x-api-key", "beta"}})), 200);
  EXPECT_EQ(status_of(options, request("GET", path)), 401);
  EXPECT_EQ(status_of(options, request("GET", path, {{"authorization", "Bearer alph"}})), 401);
  EXPECT_EQ(status_of(options, request("GET", path, {{"authorization", "Bearer "}})), 401);
  EXPECT_EQ(status_of(options, request("GET", path, {{"authorization", "Basic alpha"}})), 401);
  EXPECT_EQ(status_of(options, request("GET", path, {{"authorization", "alpha"}})), 401);
}

TEST(Auth, AWrongKeyGivesTheOpenAiErrorShape) {
  const auto reply = Gate(with_keys()).judge(request("GET", "/v1/models"), 1, true);

  ASSERT_TRUE(reply);
  const auto body = json::parse(reply->body);
  ASSERT_TRUE(body);
  const json::Value* error = body->find("error");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->string_or("code", ""), "invalid_api_key");
  EXPECT_EQ(error->string_or("type", ""), "authentication_error");
  EXPECT_TRUE(error->find("param")->is_null());
  EXPECT_EQ(header_of(reply->headers, "WWW-Authenticate"), "Bearer");
}

TEST(Auth, HealthNeedsNoKey) {
  EXPECT_EQ(status_of(with_keys(), request("GET", "/health")), 200);
  EXPECT_EQ(status_of(with_keys(), request("GET", "/v1/health")), 200);
  EXPECT_EQ(status_of(with_keys(), request("GET", "/health/x")), 401);
}

TEST(Auth, AdministrationWithoutAnAdminKeyIsForLoopbackPeersOnly) {
  for (const auto& [method, path] : {std::pair("POST", "/admin/drain"),
                                     {"GET", "/admin"},
                                     {"POST", "/v1/adapters"},
                                     {"DELETE", "/v1/adapters/a"}}) {
    EXPECT_EQ(status_of({}, request(method, path)), 200) << path;
    EXPECT_EQ(status_of({}, from_afar(request(method, path)), false), 403) << path;
  }
  EXPECT_EQ(status_of({}, from_afar(request("GET", "/v1/adapters")), false), 200);
  EXPECT_EQ(status_of({}, from_afar(request("POST", "/administer")), false), 200);
  EXPECT_EQ(status_of(with_keys(), request("POST", "/admin/drain")), 401);
}

TEST(Auth, AnAdminKeyIsAskedForEvenOnLoopback) {
  HttpOptions options = with_keys();
  options.admin_key = "root";

  const auto refused = Gate(options).judge(
      request("POST", "/admin/drain", {{"authorization", "Bearer alpha"}}), 1, true);
  const auto remote = from_afar(request("POST", "/admin/drain", {{"x-api-key", "root"}}));

  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 403);
  EXPECT_NE(refused->body.find("admin_key_required"), std::string::npos);
  EXPECT_EQ(status_of(options, remote, false), 200);
  EXPECT_EQ(status_of(options, request("GET", "/v1/models", {{"x-api-key", "root"}})), 200);
}

TEST(Cors, OriginMatrix) {
  struct Row {
    std::vector<std::string> allowed;
    std::string origin, granted;
  };
  const std::vector<Row> rows = {
      {{}, "http://localhost:3000", "http://localhost:3000"},
      {{}, "https://127.0.0.1", "https://127.0.0.1"},
      {{}, "http://[::1]:9", "http://[::1]:9"},
      {{}, "http://a.test", ""},
      {{}, "http://localhost.a.test", ""},
      {{}, "http://127.0.0.1.a.test", ""},
      {{}, "http://localhost@a.test", ""},
      {{}, "null", ""},
      {{}, "file://", ""},
      {{"http://a.test"}, "http://a.test", "http://a.test"},
      {{"http://A.test/"}, "http://a.test", "http://a.test"},
      {{"http://a.test"}, "https://a.test", ""},
      {{"http://a.test"}, "http://a.test:81", ""},
      {{"http://a.test"}, "http://localhost:3000", ""},
      {{"*"}, "http://a.test", "*"},
      {{"*"}, "null", "*"},
  };
  for (const Row& row : rows) {
    const Headers headers =
        Cors(row.allowed).reply_headers(request("GET", "/", {{"origin", row.origin}}));
    EXPECT_EQ(header_of(headers, "Access-Control-Allow-Origin"), row.granted) << row.origin;
    EXPECT_EQ(header_of(headers, "Access-Control-Allow-Credentials"), "");
  }
}

TEST(Cors, RepliesVaryByOriginUnlessAnyIsAllowed) {
  EXPECT_EQ(header_of(Cors({}).reply_headers(request("GET", "/")), "Vary"), "Origin");
  EXPECT_EQ(header_of(Cors({"*"}).reply_headers(request("GET", "/")), "Vary"), "");
}

// C35: a browser's preflight never carries the key.
TEST(Cors, PreflightIsGrantedWithoutAKey) {
  HttpOptions options = with_keys();
  options.allowed_origins = {"http://a.test"};
  const HttpRequest preflight =
      request("OPTIONS", "/v1/chat/completions",
              {{"origin", "http://a.test"},
               {"access-control-request-method", "POST"},
               {"access-control-request-headers", "authorization, content-type,X-Stainless-OS"}});

  const auto reply = Gate(options).judge(preflight, 1, true);

  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 204);
  const std::string headers = header_of(reply->headers, "Access-Control-Allow-Headers");
  for (const char* name :
       {"authorization", "content-type", "x-api-key", "anthropic-version", "x-stainless-os"}) {
    EXPECT_NE(headers.find(name), std::string::npos) << name;
  }
  EXPECT_NE(header_of(reply->headers, "Access-Control-Allow-Methods").find("POST"),
            std::string::npos);
  EXPECT_EQ(header_of(Gate(options).reply_headers(preflight), "Access-Control-Allow-Origin"),
            "http://a.test");
}

TEST(Cors, APreflightOfAForbiddenOriginGetsNoGrant) {
  const HttpRequest preflight = request("OPTIONS", "/v1/models", {{"origin", "http://a.test"}});
  const auto reply = Gate({}).judge(preflight, 1, true);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 204);
  EXPECT_EQ(header_of(reply->headers, "Access-Control-Allow-Methods"), "");
}

TEST(Cors, AdministrationNeverAcceptsAForeignOrigin) {
  HttpOptions options;
  options.allowed_origins = {"*"};
  options.admin_key = "root";
  const auto admin = [&](const char* method, const char* path, const char* origin) {
    return status_of(options, request(method, path, {{"origin", origin}, {"x-api-key", "root"}}));
  };
  EXPECT_EQ(admin("POST", "/admin/drain", "http://a.test"), 403);
  EXPECT_EQ(admin("GET", "/admin/x", "null"), 403);
  EXPECT_EQ(admin("POST", "/v1/adapters", "http://a.test"), 403);
  EXPECT_EQ(admin("DELETE", "/v1/adapters/x", "http://a.test"), 403);
  EXPECT_EQ(admin("OPTIONS", "/admin/drain", "http://a.test"), 403);
  EXPECT_EQ(admin("POST", "/admin/drain", "http://localhost:8080"), 200);
  EXPECT_EQ(admin("GET", "/v1/adapters", "http://a.test"), 200);
}

TEST(Cors, TheServersOwnOriginIsNotForeign) {
  const std::string host = "box.lan:8080";
  EXPECT_FALSE(is_foreign_origin("http://box.lan:8080", &host));
  EXPECT_TRUE(is_foreign_origin("http://box.lan", &host));
  EXPECT_TRUE(is_foreign_origin("http://evil.lan:8080", &host));
}

TEST(HostCheck, RebindingMatrix) {
  HttpOptions options;
  options.host = "kv.local";
  const auto by = [&](const char* host) {
    return status_of(options, request("GET", "/v1/models", {{"host", host}}));
  };
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]",
                           "[::1]:8080", "kv.local", "kv.local:8080", "localhost."}) {
    EXPECT_EQ(by(host), 200) << host;
  }
  for (const char* host : {"evil.test", "evil.test:8080", "localhost.evil.test", "127.0.0.1.nip.io",
                           "192.168.0.1", "[::2]", ""}) {
    EXPECT_EQ(by(host), 403) << host;
  }
  for (const char* host : {"a b", "[::1", "localhost:x", "localhost:123456", "user@localhost"}) {
    EXPECT_EQ(by(host), 400) << host;
  }
}

TEST(HostCheck, AppliesToLoopbackListenersOnly) {
  const auto r = request("GET", "/", {{"host", "box.lan"}});
  EXPECT_EQ(status_of({}, r, true), 403);
  EXPECT_EQ(status_of({}, r, false), 200);
}

TEST(HostCheck, Http11NeedsExactlyOneHost) {
  HttpRequest none = request("GET", "/");
  none.headers.clear();
  EXPECT_EQ(Gate({}).judge(none, 1, true)->status, 400);
  EXPECT_FALSE(Gate({}).judge(none, 0, true));
  EXPECT_EQ(status_of({}, request("GET", "/", {{"host", "localhost"}, {"host", "localhost"}})),
            400);
}

// A page of evil.test that rebinds its name to this machine is a loopback peer with its own Origin.
TEST(HostCheck, KeylessAdministrationNeedsALocalHostOnEveryListener) {
  const Headers rebound = {{"host", "evil.test:8080"}, {"origin", "http://evil.test:8080"}};
  EXPECT_EQ(status_of({}, request("POST", "/admin/shutdown", rebound), false), 403);
  const Headers by_address = {{"host", "192.168.0.1:8080"}};
  EXPECT_EQ(status_of({}, request("POST", "/admin/shutdown", by_address), false), 200);
}

TEST(RequestId, IsTheClientsWhenItIsHarmless) {
  const std::string good(128, 'x');
  const std::string too_long(129, 'x');
  const std::string spaced = "a b";
  const std::string high = "\xc3\xa9";
  const std::string none;
  EXPECT_EQ(choose_request_id(&good), good);
  for (const std::string* bad : {&too_long, &spaced, &high, &none}) {
    EXPECT_EQ(choose_request_id(bad).substr(0, 4), "req_");
  }
  EXPECT_NE(choose_request_id(nullptr), choose_request_id(nullptr));
}

TEST(Target, SplitsAndDecodes) {
  const auto plain = parse_target("/v1/models/a%20b%2Fc?x=%zz");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->path, "/v1/models/a b/c");
  EXPECT_EQ(plain->query, "x=%zz");
  const auto absolute = parse_target("HTTP://h:1?q");
  ASSERT_TRUE(absolute);
  EXPECT_EQ(absolute->authority, "h:1");
  EXPECT_EQ(absolute->path, "/");
  EXPECT_EQ(absolute->query, "q");
  for (const char* bad : {"", "v1", "/%", "/%2", "/%g0", "/%00", "http://", "ftp://h/"}) {
    EXPECT_FALSE(parse_target(bad)) << bad;
  }
}

}  // namespace
}  // namespace kvasir::server
