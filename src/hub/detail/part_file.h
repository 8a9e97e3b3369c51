// PartFile: blobs/<id>.incomplete and the digest of what is in it. What an earlier run left is
// hashed first, so that the digest always covers every byte of the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "hub/detail/digest.h"
#include "hub/detail/posix.h"

namespace kvasir::hub {

class PartFile {
 public:
  // Opens or makes it; hashes what is there. alive: called now and then while hashing; false ends
  // it with Errc::cancelled. A file longer than size_bytes is started anew.
  static Result<PartFile> open(const std::filesystem::path& blob,
                               std::uint64_t size_bytes,
                               const std::function<bool()>& alive);

  std::uint64_t done() const noexcept { return done_; }
  bool is_whole() const noexcept { return done_ == size_bytes_; }
  Status restart();                                 // from byte 0
  Status append(std::span<const std::byte> bytes);  // beyond size_bytes: an error
  void discard();                                   // removes it
  // Whole and of the right digest: becomes the blob. Else it is removed, and an error.
  Status finish();

 private:
  PartFile(std::filesystem::path blob, std::uint64_t size_bytes, Fd fd);
  Status hash_existing(const std::function<bool()>& alive);

  std::filesystem::path blob_, path_;
  std::string id_;
  std::uint64_t size_bytes_ = 0, done_ = 0;
  Digest digest_;
  Fd fd_;
};

}  // namespace kvasir::hub
