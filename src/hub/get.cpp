#include "hub/get.h"

#include <algorithm>
#include <map>

#include "hub/detail/blob_fetch.h"
#include "hub/detail/places.h"
#include "hub/detail/posix.h"
#include "hub/detail/selection.h"
#include "hub/repo.h"
#include "hub/use_mark.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;

class Getter {
 public:
  Getter(const HubOptions& options, const GetRequest& request, RepoRef ref)
      : options_(options),
        request_(request),
        ref_(std::move(ref)),
        folder_(repo_path(options.cache, ref_.repo)),
        client_(options_, request.cancel) {}

  Result<GetReport> run() {
    KVASIR_TRY(const Listing listing, fetch_listing(client_, options_, ref_, request_.cancel));
    KVASIR_TRY(files_, select_files(listing, {request_.include, request_.exclude}, ref_.repo));
    commit_ = listing.commit;
    for (RemoteFile& file : files_) {
      if (file.blob.empty())
        KVASIR_TRY_DO(fetch_facts(client_, options_, ref_.repo, commit_, file, request_.cancel));
    }
    GetReport report = plan();
    if (request_.is_dry_run) return report;
    KVASIR_TRY(const UseMark mark, UseMark::take_repo(options_.cache, ref_.repo));
    KVASIR_TRY_DO(check_space());
    for (const RemoteFile& file : files_) {
      KVASIR_TRY(const std::uint64_t n, bring(file, report.total_bytes));
      report.fetched_bytes += n;
    }
    // Last, so that refs name whole snapshots. A commit asked for by its own name gets a ref too:
    // it is wanted, and gc takes what has none.
    KVASIR_TRY_DO(write_ref(folder_, ref_.revision, commit_));
    return report;
  }

 private:
  GetReport plan() const {
    GetReport out{ref_.repo, ref_.revision, commit_, folder_ / "snapshots" / commit_, {}, {}, 0, 0};
    out.model = out.snapshot;
    std::map<std::string, std::string> ggufs;  // model → its first file
    bool has_safetensors = false;
    for (const RemoteFile& file : files_) {
      out.files.push_back({file.name, file.size_bytes, has_blob(folder_, file)});
      out.total_bytes += file.size_bytes;
      has_safetensors = has_safetensors || file.name.ends_with(".safetensors");
      if (!file.name.ends_with(".gguf") || is_vision_projector(file.name)) continue;
      std::string& first = ggufs[gguf_model_name(file.name)];
      if (first.empty() || file.name < first) first = file.name;
    }
    if (ggufs.size() == 1 && !has_safetensors) out.model /= ggufs.begin()->second;
    return out;
  }

  Status check_space() const {
    std::uint64_t missing = 0;
    for (const RemoteFile& file : files_) {
      if (has_blob(folder_, file)) continue;
      std::error_code ec;
      const auto part = fs::file_size(folder_ / "blobs" / (file.blob + ".incomplete"), ec);
      missing += file.size_bytes - (ec ? 0 : std::min<std::uint64_t>(part, file.size_bytes));
    }
    KVASIR_TRY_DO(make_folders(folder_));
    std::error_code ec;
    const fs::space_info space = fs::space(folder_, ec);
    if (ec || missing <= space.available) return {};
    return Error{Errc::capacity, ref_.repo + " needs " + std::to_string(missing >> 20) +
                                     " MiB more, " + folder_.string() + " has " +
                                     std::to_string(space.available >> 20) + " MiB free"};
  }

  Result<std::uint64_t> bring(const RemoteFile& file, std::uint64_t total_bytes) {
    const auto show = [&](std::uint64_t n) {
      if (request_.progress)
        request_.progress({"fetching " + ref_.repo, done_bytes_ + n, total_bytes});
    };
    if (request_.cancel && *request_.cancel) return Error{Errc::cancelled, "cancelled"};
    KVASIR_TRY(const BlobResult result,
               fetch_blob({options_, client_, request_.cancel, ref_.repo, commit_, file, show}));
    KVASIR_TRY_DO(link_file(folder_, commit_, file.name, file.blob));
    show(file.size_bytes);
    done_bytes_ += file.size_bytes;
    return result.fetched_bytes;
  }

  const HubOptions& options_;
  const GetRequest& request_;
  const RepoRef ref_;
  const fs::path folder_;
  HttpClient client_;
  std::string commit_;
  std::vector<RemoteFile> files_;
  std::uint64_t done_bytes_ = 0;  // of the files before the present one
};

}  // namespace

Result<GetReport> get(const HubOptions& options, const GetRequest& request) {
  KVASIR_TRY(RepoRef ref, parse_repo(request.repo));
  if (options.cache.empty()) return invalid("no folder for the hub cache");
  HubOptions checked = options;
  while (checked.endpoint.ends_with('/')) checked.endpoint.pop_back();
  return Getter(checked, request, std::move(ref)).run();
}

}  // namespace kvasir::hub
