// UseMark: "this repository's files are in use". A server holds one for the model it serves and a
// download one for the repository it writes; gc needs the other side of the lock and leaves marked
// repositories alone. A flock on .locks/models--org--name/in-use: it ends with the process.
// Movable; any thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace kvasir::hub {

class UseMark {
 public:
  // Of the repository that `model_path` (a snapshot or a file in one) is in. A path outside of a
  // hub cache gives a mark that marks nothing. Errors: gc held the repository for longer than
  // `limit`.
  static Result<UseMark> take(const std::filesystem::path& model_path,
                              std::chrono::milliseconds limit = std::chrono::seconds(30));
  static Result<UseMark> take_repo(const std::filesystem::path& cache,
                                   std::string_view repo,
                                   std::chrono::milliseconds limit = std::chrono::seconds(30));
  // The other side, for gc: an error (capacity) at once while anybody uses the repository.
  static Result<UseMark> take_alone(const std::filesystem::path& cache, std::string_view repo);

  UseMark() = default;  // marks nothing
  UseMark(UseMark&& other) noexcept;
  UseMark& operator=(UseMark&& other) noexcept;
  ~UseMark();

  bool is_held() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace kvasir::hub
