#include "hub/detail/blob_fetch.h"

#include <algorithm>
#include <charconv>

#include "hub/detail/file_lock.h"
#include "hub/detail/part_file.h"
#include "hub/detail/places.h"
#include "hub/detail/retry.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
constexpr long kPartialContent = 206, kRangeNotSatisfiable = 416;

// "bytes 100-199/200" → 100.
std::optional<std::uint64_t> start_of_range(std::string_view header) {
  constexpr std::string_view kUnit = "bytes ";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  std::uint64_t start = 0;
  const auto end = std::from_chars(header.data(), header.data() + header.size(), start);
  if (end.ec != std::errc()) return std::nullopt;
  return start;
}

// The rounds that bring one file: each asks for what is missing.
class Rounds {
 public:
  Rounds(const BlobJob& job, PartFile& part, FileLock& lock)
      : job_(job), part_(part), lock_(lock) {}

  Result<BlobResult> run() {
    Retry retry(job_.options, job_.cancel);
    std::uint64_t most = part_.done();  // progress is more than there ever was
    while (!part_.is_whole()) {
      const HttpOutcome outcome = round();
      if (!failure_) return std::move(failure_).error();
      if (outcome.is_success() && part_.is_whole()) break;
      if (job_.cancel && *job_.cancel) return Error{Errc::cancelled, "cancelled"};
      if (is_restart_due(outcome)) {
        KVASIR_TRY_DO(part_.restart());
        continue;
      }
      if (!retry.again(as_drop(outcome), part_.done() > most)) return give_up(outcome);
      most = std::max(most, part_.done());
    }
    return BlobResult{fetched_};
  }

 private:
  HttpOutcome round() {
    is_first_chunk_ = true;
    const std::string url = file_url(job_.options, job_.repo, job_.commit, job_.file.name);
    return job_.client.fetch({url, /*is_head=*/false, part_.done()},
                             [&](const HttpReply& reply, std::span<const std::byte> bytes) {
                               failure_ = accept(reply, bytes);
                               return failure_.has_value();
                             });
  }

  Status accept(const HttpReply& reply, std::span<const std::byte> bytes) {
    if (is_first_chunk_ && part_.done() > 0) KVASIR_TRY_DO(align(reply));
    is_first_chunk_ = false;
    KVASIR_TRY_DO(part_.append(bytes));
    fetched_ += bytes.size();
    lock_.touch();
    if (job_.on_bytes) job_.on_bytes(part_.done());
    return {};
  }

  // A server may answer a range with the whole file: then what we have is dropped.
  Status align(const HttpReply& reply) {
    if (reply.status != kPartialContent) return part_.restart();
    if (start_of_range(reply.headers.content_range) == part_.done()) return {};
    return io_error("the server sent another range than asked for: " + reply.headers.content_range);
  }

  // 416 for a part that is shorter than the file: once, from the start.
  bool is_restart_due(const HttpOutcome& outcome) {
    if (outcome.transport != Transport::done || outcome.reply.status != kRangeNotSatisfiable ||
        has_restarted_)
      return false;
    has_restarted_ = true;
    return true;
  }

  // A body that ends early without the transport noticing is a cut connection.
  static HttpOutcome as_drop(HttpOutcome outcome) {
    if (outcome.is_success()) {
      outcome.transport = Transport::dropped;
      outcome.what = "the body ended early";
    }
    return outcome;
  }

  Error give_up(const HttpOutcome& outcome) const {
    if (job_.cancel && *job_.cancel) return {Errc::cancelled, "cancelled"};
    return http_error(as_drop(outcome), job_.repo + "/" + job_.file.name, job_.repo, job_.options);
  }

  const BlobJob& job_;
  PartFile& part_;
  FileLock& lock_;
  Status failure_;  // of writing
  std::uint64_t fetched_ = 0;
  bool is_first_chunk_ = true, has_restarted_ = false;
};

Result<BlobResult> fetch_locked(const BlobJob& job, const fs::path& blob, FileLock& lock) {
  auto part = PartFile::open(blob, job.file.size_bytes, [&] {
    lock.touch();
    return !(job.cancel && *job.cancel);
  });
  if (!part) return std::move(part).error();
  auto fetched = Rounds(job, *part, lock).run();
  if (!fetched) return fetched;
  KVASIR_TRY_DO(part->finish());
  return fetched;
}

// Errors of the disk and of digests do not know the file's name in the repository.
Error named(Error error, const BlobJob& job) {
  const std::string subject = job.repo + "/" + job.file.name;
  if (error.code != Errc::cancelled && !error.what.starts_with(subject))
    error.what = subject + ": " + error.what;
  return error;
}

}  // namespace

bool has_blob(const fs::path& repo_path, const RemoteFile& file) {
  std::error_code ec;
  const auto size_bytes = fs::file_size(repo_path / "blobs" / file.blob, ec);
  return !ec && size_bytes == file.size_bytes;
}

Result<BlobResult> fetch_blob(const BlobJob& job) {
  const fs::path folder = repo_path(job.options.cache, job.repo);
  if (has_blob(folder, job.file)) return BlobResult{};
  const fs::path locks = locks_path(job.options.cache, job.repo);
  KVASIR_TRY_DO(make_folders(folder / "blobs"));
  KVASIR_TRY_DO(make_folders(locks));
  const LockWait wait{job.cancel, job.options.lock_poll, job.options.lock_limit};
  auto lock = FileLock::acquire(locks / (job.file.blob + ".kvasir"), wait);
  if (!lock) return named(std::move(lock).error(), job);
  const auto others = take_flock(locks / (job.file.blob + ".lock"), wait);
  if (!others) return named(others.error(), job);
  if (has_blob(folder, job.file)) return BlobResult{};  // whoever held the lock brought it
  auto fetched = fetch_locked(job, folder / "blobs" / job.file.blob, *lock);
  if (!fetched) return named(std::move(fetched).error(), job);
  return fetched;
}

}  // namespace kvasir::hub
