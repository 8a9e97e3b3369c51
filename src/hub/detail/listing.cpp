#include "hub/detail/listing.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "hub/detail/digest.h"
#include "hub/detail/retry.h"

namespace kvasir::hub {
namespace {

constexpr std::size_t kMaxAnswerBytes = 64u << 20;
constexpr std::size_t kMaxFiles = 100'000, kMaxNameBytes = 1024, kMaxPartBytes = 200;

Result<std::string> get_text(HttpClient& client,
                             const HubOptions& options,
                             const std::string& url,
                             const std::string& repo,
                             const std::atomic<bool>* cancel) {
  Retry retry(options, cancel);
  while (true) {
    std::string text;
    const HttpOutcome outcome =
        client.fetch({url}, [&](const HttpReply&, std::span<const std::byte> bytes) {
          if (text.size() + bytes.size() > kMaxAnswerBytes) return false;
          text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return true;
        });
    if (outcome.is_success()) return text;
    if (outcome.transport == Transport::stopped)
      return io_error(repo + ": the listing is over " + std::to_string(kMaxAnswerBytes) + " bytes");
    if (retry.again(outcome, /*made_progress=*/false)) continue;
    if (cancel && *cancel) return Error{Errc::cancelled, "cancelled"};
    return http_error(outcome, repo, repo, options);
  }
}

std::string shown(std::string_view name) {
  std::string out;
  json::append_quoted(out, name.substr(0, 200));
  return out;
}

Result<RemoteFile> parse_file(const json::Value& item) {
  RemoteFile out;
  out.name = item.string_or("rfilename", "");
  if (!is_safe_name(out.name)) return invalid("unsafe file name " + shown(out.name));
  const json::Value* lfs = item.find("lfs");
  out.blob = lfs ? lfs->string_or("sha256", "") : "";
  if (out.blob.empty()) out.blob = item.string_or("blobId", "");
  std::int64_t size = item.int_or("size", -1);
  if (lfs) size = lfs->int_or("size", size);
  if (!out.blob.empty() && !is_blob_id(out.blob))
    return invalid(shown(out.name) + " has no digest this program knows: " + shown(out.blob));
  if (size < 0) out.blob.clear();
  out.size_bytes = size < 0 ? 0 : static_cast<std::uint64_t>(size);
  return out;
}

std::string without_quotes(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

}  // namespace

bool is_safe_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  const auto is_bad = [](char c) {
    return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\';
  };
  if (std::any_of(name.begin(), name.end(), is_bad)) return false;
  while (true) {  // one part a round
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPartBytes) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

Result<Listing> parse_listing(const json::Value& answer) {
  Listing out;
  out.commit = answer.string_or("sha", "");
  if (!is_commit(out.commit)) return invalid("the listing has no commit");
  const json::Value* files = answer.find("siblings");
  if (!files || !files->is_array()) return invalid("the listing has no files");
  if (files->as_array()->size() > kMaxFiles) return invalid("the listing has too many files");
  std::unordered_set<std::string> names;
  for (const json::Value& item : *files->as_array()) {
    KVASIR_TRY(RemoteFile file, parse_file(item));
    if (!names.insert(file.name).second)
      return invalid("the listing has " + shown(file.name) + " twice");
    out.files.push_back(std::move(file));
  }
  return out;
}

Result<Listing> fetch_listing(HttpClient& client,
                              const HubOptions& options,
                              const RepoRef& ref,
                              const std::atomic<bool>* cancel) {
  const std::string url = options.endpoint + "/api/models/" + ref.repo + "/revision/" +
                          url_escape(ref.revision, /*keep_slash=*/false) + "?blobs=true";
  KVASIR_TRY(const std::string text, get_text(client, options, url, ref.repo, cancel));
  const auto answer = json::parse(text, {kMaxAnswerBytes, 32});
  if (!answer) return io_error(ref.repo + ": the listing is not JSON: " + answer.error().what);
  auto listing = parse_listing(*answer);
  if (!listing) return Error{listing.error().code, ref.repo + ": " + listing.error().what};
  if (is_commit(ref.revision) && listing->commit != ref.revision)
    return io_error(ref.repo + ": asked for commit " + ref.revision + ", the server listed " +
                    listing->commit);
  return listing;
}

std::string file_url(const HubOptions& options,
                     const std::string& repo,
                     const std::string& commit,
                     const std::string& name) {
  return options.endpoint + "/" + repo + "/resolve/" + commit + "/" +
         url_escape(name, /*keep_slash=*/true);
}

Status fetch_facts(HttpClient& client,
                   const HubOptions& options,
                   const std::string& repo,
                   const std::string& commit,
                   RemoteFile& file,
                   const std::atomic<bool>* cancel) {
  const HttpRequest request{file_url(options, repo, commit, file.name), /*is_head=*/true};
  const std::string subject = repo + "/" + file.name;
  Retry retry(options, cancel);
  HttpOutcome outcome;
  do {
    outcome = client.fetch(request, [](const HttpReply&, auto) { return true; });
  } while (retry.again(outcome, /*made_progress=*/false));
  if (cancel && *cancel) return Error{Errc::cancelled, "cancelled"};
  const HttpHeaders& headers = outcome.reply.headers;
  const bool is_linked = !headers.linked_etag.empty();
  if (!is_linked && !outcome.is_success()) return http_error(outcome, subject, repo, options);
  file.blob = without_quotes(is_linked ? headers.linked_etag : headers.etag);
  std::uint64_t size = 0;
  const std::string& text = headers.linked_size;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), size);
  const bool has_size = end.ec == std::errc() && end.ptr == text.data() + text.size();
  if (!is_blob_id(file.blob) || (!has_size && (is_linked || !headers.content_length)))
    return io_error(subject + ": the server gives no digest and size to check the file by");
  file.size_bytes = has_size ? size : *headers.content_length;
  return {};
}

}  // namespace kvasir::hub
