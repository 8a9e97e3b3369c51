#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "hub/detail/digest.h"
#include "hub/detail/listing.h"
#include "hub/repo.h"

// What the hub's API answers must not lead out of the cache, whatever it is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto answer = json::parse(text, {1 << 20, 32});
  if (!answer) return 0;
  const auto listing = hub::parse_listing(*answer);
  if (!listing) return 0;
  KVASIR_CHECK(hub::is_commit(listing->commit));
  for (const hub::RemoteFile& file : listing->files) {
    const std::filesystem::path inside = ("/s/" + file.name);
    KVASIR_CHECK(inside.lexically_normal() == inside && inside.native().starts_with("/s/"));
    KVASIR_CHECK(file.blob.empty() || hub::is_blob_id(file.blob));
  }
  return 0;
}
