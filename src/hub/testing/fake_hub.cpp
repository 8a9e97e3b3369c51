#include "hub/testing/fake_hub.h"

#include <stdlib.h>

#include <algorithm>
#include <fstream>

#include "base/check.h"
#include "hub/detail/digest.h"
#include "json/json.h"

namespace kvasir::hub::testing {

namespace fs = std::filesystem;

std::string HubFile::id() const {
  Digest digest(std::string(is_lfs ? 64 : 40, '0'), bytes.size());
  digest.update(std::as_bytes(std::span(bytes)));
  return digest.hex();
}

FakeHub::FakeHub() {
  ::setenv("no_proxy", "127.0.0.1,localhost", 1);
  server_ =
      std::make_unique<HttpServer>([this](const Request& request) { return answer(request); });
}
FakeHub::~FakeHub() { server_.reset(); }

void FakeHub::add(HubFile file) {
  const std::lock_guard lock(mutex_);
  std::erase_if(files_, [&](const HubFile& f) { return f.name == file.name; });
  files_.push_back(std::move(file));
}

void FakeHub::add_fault(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
}

std::vector<Request> FakeHub::file_requests() const {
  std::vector<Request> out = server_->requests();
  std::erase_if(out, [](const Request& r) { return r.path.starts_with("/api/"); });
  return out;
}

HubOptions FakeHub::options(const fs::path& folder) const {
  HubOptions out;
  out.cache = folder / "hub";
  out.registry = folder / "registry.sqlite";
  out.endpoint = server_->url();
  out.max_retries = 3;
  out.retry_delay = std::chrono::milliseconds(1);
  out.connect_timeout = std::chrono::milliseconds(2000);
  out.stall_timeout = std::chrono::seconds(5);
  out.lock_poll = std::chrono::milliseconds(5);
  out.lock_limit = std::chrono::seconds(20);
  return out;
}

Reply FakeHub::answer(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (!token.empty() && request.header("authorization") != "Bearer " + token)
    return {
        401, {{"X-Error-Code", "GatedRepo"}, {"X-Error-Message", "Access is restricted."}}, "no"};
  if (request.path.starts_with("/api/models/" + repo + "/revision/")) return listing();
  const std::string prefix = "/" + repo + "/resolve/" + commit + "/";
  for (const HubFile& file : files_) {
    if (request.path == prefix + file.name) return file_reply(request, file);
  }
  return {404, {}, "no such thing"};
}

Reply FakeHub::listing() {
  if (listing_failures > 0) {
    --listing_failures;
    return {503, {}, "later"};
  }
  if (!listing_body.empty()) return {200, {}, listing_body};
  json::Array siblings;
  for (const HubFile& file : files_) {
    json::Object item{{"rfilename", file.name}};
    if (lists_blobs) {
      item["size"] = file.bytes.size();
      item["blobId"] = file.is_lfs ? std::string(40, 'a') : file.id();
    }
    if (lists_blobs && file.is_lfs)
      item["lfs"] = json::Object{{"sha256", file.id()}, {"size", file.bytes.size()}};
    siblings.push_back(std::move(item));
  }
  for (const std::string& name : extra_names)
    siblings.push_back(
        json::Object{{"rfilename", name}, {"size", 1}, {"blobId", std::string(40, 'b')}});
  return {200, {}, json::write(json::Object{{"sha", commit}, {"siblings", std::move(siblings)}})};
}

Reply FakeHub::file_reply(const Request& request, const HubFile& file) {
  Reply reply{200, {{"X-Repo-Commit", commit}}, file.bytes};
  const std::string etag = "\"" + file.id() + "\"";
  if (file.is_lfs && !storage_url.empty()) {
    reply.status = 302;
    reply.body.clear();
    reply.headers.insert(reply.headers.end(),
                         {{"Location", storage_url + request.path},
                          {"X-Linked-ETag", etag},
                          {"X-Linked-Size", std::to_string(file.bytes.size())}});
    return reply;
  }
  reply.headers.emplace_back("ETag", etag);
  if (request.method == "HEAD") reply.content_length = file.bytes.size();
  const std::string range = request.header("range");
  if (knows_ranges && range.starts_with("bytes=")) {
    const std::size_t from = std::stoul(range.substr(6));
    reply.status = from >= file.bytes.size() ? 416 : 206;
    reply.body = from >= file.bytes.size() ? "" : file.bytes.substr(from);
    reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(from) + "-" +
                                                    std::to_string(file.bytes.size() - 1) + "/" +
                                                    std::to_string(file.bytes.size()));
  }
  if (request.method != "HEAD" && !faults_.empty()) {
    faults_.front()(request, reply);
    faults_.pop_front();
  }
  return reply;
}

std::string noise(std::size_t n_bytes, unsigned seed) {
  std::string out(n_bytes, '\0');
  std::uint32_t state = seed * 2654435761u + 1;
  for (char& c : out) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "kvasir-hub-XXXXXX").string();
  KVASIR_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = fs::canonical(name);
}
TempFolder::~TempFolder() {
  std::error_code ec;
  fs::remove_all(path_, ec);
}

std::string file_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace kvasir::hub::testing
