// A hub for tests: one repository's listing and files over HttpServer, and faults for the next file
// requests. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hub/options.h"
#include "hub/testing/http_server.h"

namespace kvasir::hub::testing {

inline const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

struct HubFile {
  std::string name, bytes;
  bool is_lfs = false;
  std::string id() const;  // its SHA-256, or git's SHA-1
};

class FakeHub {
 public:
  FakeHub();
  ~FakeHub();

  void add(HubFile file);
  // Changes the next file replies, one each, first in first out.
  using Fault = std::function<void(const Request&, Reply&)>;
  void add_fault(Fault fault);

  std::string repo = "org/tiny";
  std::string commit = kCommit;
  std::string token;        // asked for when not empty
  std::string storage_url;  // LFS files redirect there, when not empty
  bool lists_blobs = true;  // else sizes and digests only come with the files
  bool knows_ranges = true;
  int listing_failures = 0;              // 503 that many times
  std::string listing_body;              // instead of the real one, when not empty
  std::vector<std::string> extra_names;  // in the listing only

  HttpServer& server() { return *server_; }
  std::vector<Request> file_requests() const;
  // A cache in `folder` that talks to this hub, with short delays.
  HubOptions options(const std::filesystem::path& folder) const;

 private:
  Reply answer(const Request& request);
  Reply listing();
  Reply file_reply(const Request& request, const HubFile& file);

  mutable std::mutex mutex_;
  std::vector<HubFile> files_;
  std::deque<Fault> faults_;
  std::unique_ptr<HttpServer> server_;
};

std::string noise(std::size_t n_bytes, unsigned seed);  // bytes that no slice repeats

// A new folder under the system's temporary one, removed with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string file_text(const std::filesystem::path& path);  // "" when it cannot be read
void write_text(const std::filesystem::path& path, const std::string& text);  // makes folders

}  // namespace kvasir::hub::testing
