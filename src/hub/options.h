// HubOptions: where models lie on this machine, and where they come from. Plain values: the
// environment (HF_HUB_CACHE, HF_HOME, HF_ENDPOINT, HF_TOKEN) is read in app/ only. Any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace kvasir::hub {

struct HubOptions {
  std::filesystem::path cache;     // the hub cache: holds models--org--name/
  std::filesystem::path registry;  // the SQLite file; empty: in memory
  std::string endpoint = "https://huggingface.co";
  std::string token;              // sent to the endpoint's origin only; empty: anonymous
  std::filesystem::path ca_file;  // empty: the system's certificates

  int max_retries = 5;                         // rounds in a row that bring no byte
  std::chrono::milliseconds retry_delay{500};  // the first; doubles each time
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::seconds stall_timeout{30};  // no byte for this long: the connection is given up
  std::chrono::milliseconds lock_poll{100};
  std::chrono::seconds lock_limit{24 * 3600};  // longest wait for another process's download
};

}  // namespace kvasir::hub
