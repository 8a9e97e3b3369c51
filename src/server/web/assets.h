// The web chat's files, embedded in the binary at build time (cmake/embed.cmake).
// Invariant: names are unique and sorted; contents live as long as the process.
// Called by the routes of SRV-22: index.html for / and /chat, the others under /assets/.
// Thread rule: immutable, from any thread.
#pragma once

#include <span>
#include <string_view>

namespace kvasir::server {

/** One file. `etag` is a quoted hash of the content, ready for the header. */
struct Asset {
  std::string_view name;          // "app.js": no folder
  std::string_view content_type;  // with charset for text
  std::string_view content;
  std::string_view etag;
};

/** All files, sorted by name. */
std::span<const Asset> assets();

}  // namespace kvasir::server
