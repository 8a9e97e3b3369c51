#include "server/http/request_id.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "server/http/ascii.h"

namespace kvasir::server {
namespace {

constexpr std::size_t kMaxIdBytes = 128;

std::string make_request_id() {
  // Unique, not secret: nothing is authorised by an id.
  thread_local std::mt19937_64 generator{[] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }()};
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string id = "req_";
  std::uint64_t bits = 0;
  for (int i = 0; i < 24; ++i, bits >>= 4) {
    if (i % 16 == 0) bits = generator();
    id.push_back(kDigits[bits & 15]);
  }
  return id;
}

}  // namespace

std::string choose_request_id(const std::string* sent) {
  const bool usable = sent && !sent->empty() && sent->size() <= kMaxIdBytes &&
                      std::all_of(sent->begin(), sent->end(), is_visible);
  return usable ? *sent : make_request_id();
}

}  // namespace kvasir::server
