#include "hub/get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "hub/detail/file_lock.h"
#include "hub/testing/fake_hub.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using testing::FakeHub;
using testing::file_text;
using ::testing::HasSubstr;
using testing::HubFile;
using testing::kCommit;
using testing::noise;
using testing::Reply;
using testing::Request;
using testing::TempFolder;

// SRV-80 throughout.
class Get : public ::testing::Test {
 protected:
  Get() { hub_.add(config_); }

  GetRequest request(std::string repo = "org/tiny") {
    GetRequest out;
    out.repo = std::move(repo);
    return out;
  }
  Result<GetReport> run() { return get(hub_.options(folder_.path()), request()); }
  fs::path repo() const { return folder_.path() / "hub" / "models--org--tiny"; }
  fs::path in_snapshot(const std::string& name) const {
    return repo() / "snapshots" / kCommit / name;
  }

  FakeHub hub_;
  TempFolder folder_;
  const HubFile config_{"config.json", "{\"model_type\": \"llama\"}\n", false};
  const HubFile weights_{"model.safetensors", noise(100'000, 1), true};
};

TEST_F(Get, WritesTheLayoutThatHuggingfaceHubReads) {
  hub_.add(weights_);
  hub_.add({"nested/deep/tokens.txt", "abc", false});

  const auto report = run();

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(report->commit, kCommit);
  EXPECT_EQ(report->snapshot, repo() / "snapshots" / kCommit);
  EXPECT_EQ(report->model, report->snapshot);
  EXPECT_EQ(file_text(repo() / "refs/main"), kCommit);
  EXPECT_EQ(fs::read_symlink(in_snapshot("model.safetensors")), "../../blobs/" + weights_.id());
  EXPECT_EQ(file_text(in_snapshot("model.safetensors")), weights_.bytes);
  EXPECT_EQ(file_text(in_snapshot("config.json")), config_.bytes);
  EXPECT_EQ(fs::read_symlink(in_snapshot("nested/deep/tokens.txt")),
            "../../../../blobs/f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");  // git hash-object
  EXPECT_EQ(file_text(in_snapshot("nested/deep/tokens.txt")), "abc");
}

TEST_F(Get, AsksForNothingButTheListingTheSecondTime) {
  hub_.add(weights_);
  ASSERT_TRUE(run());
  hub_.server().forget_requests();

  const auto again = run();

  ASSERT_TRUE(again);
  EXPECT_EQ(again->fetched_bytes, 0u);
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(Get, ResumesAfterACutAtAnyPlaceAndAsksForTheMissingRangeOnly) {
  for (const std::size_t cut :
       {std::size_t{1}, std::size_t{4096}, std::size_t{65'537}, weights_.bytes.size() - 1}) {
    TempFolder fresh;
    hub_.add(weights_);
    HubOptions options = hub_.options(fresh.path());
    options.max_retries = 0;
    ASSERT_TRUE(get(options, [&] {
      GetRequest first = request();
      first.include = {"config.json"};
      return first;
    }()));
    hub_.add_fault([&](const Request&, Reply& reply) { reply.cut_after = cut; });
    const auto interrupted = get(options, request());
    ASSERT_FALSE(interrupted);
    const fs::path blob = fresh.path() / "hub/models--org--tiny/blobs" / weights_.id();
    ASSERT_EQ(fs::file_size(blob.string() + ".incomplete"), cut);
    hub_.server().forget_requests();

    const auto resumed = get(options, request());

    ASSERT_TRUE(resumed) << resumed.error().what;
    EXPECT_EQ(resumed->fetched_bytes, weights_.bytes.size() - cut);
    ASSERT_EQ(hub_.file_requests().size(), 1u);
    EXPECT_EQ(hub_.file_requests()[0].header("range"), "bytes=" + std::to_string(cut) + "-");
    EXPECT_EQ(file_text(blob), weights_.bytes);
    EXPECT_FALSE(fs::exists(blob.string() + ".incomplete"));
  }
}

TEST_F(Get, RetriesDropsAndServerErrorsByItself) {
  hub_.add(weights_);
  hub_.listing_failures = 2;
  hub_.add_fault([](const Request&, Reply&) {});  // config.json
  hub_.add_fault([](const Request&, Reply& reply) { reply.cut_after = 1000; });
  hub_.add_fault([](const Request&, Reply& reply) { reply = {503, {{"Retry-After", "0"}}, "x"}; });
  hub_.add_fault([](const Request&, Reply& reply) { reply.cut_after = 50'000; });

  const auto report = run();

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(file_text(in_snapshot("model.safetensors")), weights_.bytes);
  EXPECT_EQ(hub_.file_requests().back().header("range"), "bytes=51000-");
}

TEST_F(Get, GivesUpWhenRoundsBringNothing) {
  hub_.listing_failures = 100;

  const auto report = run();

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::io);
  EXPECT_THAT(report.error().what, HasSubstr("HTTP 503"));
  EXPECT_EQ(hub_.server().requests().size(), 4u);  // one and three more
}

TEST_F(Get, StartsAnewWhenTheServerIgnoresTheRange) {
  hub_.add(weights_);
  testing::write_text(repo() / "blobs" / (weights_.id() + ".incomplete"),
                      weights_.bytes.substr(0, 30'000));
  hub_.knows_ranges = false;

  const auto report = run();

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(file_text(in_snapshot("model.safetensors")), weights_.bytes);
}

TEST_F(Get, StartsAnewWhenThePartIsLongerThanTheFile) {
  hub_.add(weights_);
  testing::write_text(repo() / "blobs" / (weights_.id() + ".incomplete"), noise(200'000, 7));

  ASSERT_TRUE(run());
  EXPECT_EQ(file_text(in_snapshot("model.safetensors")), weights_.bytes);
}

TEST_F(Get, WrongBytesAreDeletedAndAnError) {
  hub_.add(weights_);
  hub_.add_fault([](const Request&, Reply&) {});
  hub_.add_fault([](const Request&, Reply& reply) { reply.body[12'345] ^= 1; });

  const auto report = run();

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "digest_mismatch");
  EXPECT_THAT(report.error().what, HasSubstr("org/tiny/model.safetensors: SHA-256 is "));
  EXPECT_FALSE(fs::exists(in_snapshot("model.safetensors")));
  EXPECT_FALSE(fs::exists(repo() / "blobs" / weights_.id()));
  EXPECT_FALSE(fs::exists(repo() / "blobs" / (weights_.id() + ".incomplete")));
  EXPECT_FALSE(fs::exists(repo() / "refs/main"));
  EXPECT_TRUE(run());  // and the next call starts clean
}

TEST_F(Get, AResumedPartThatWasWrongIsDeleted) {
  hub_.add(weights_);
  testing::write_text(repo() / "blobs" / (weights_.id() + ".incomplete"), noise(1000, 9));

  const auto report = run();

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "digest_mismatch");
  EXPECT_TRUE(run());
}

TEST_F(Get, WrongBytesOfASmallFileAreSeenByGitsDigest) {
  hub_.add_fault([](const Request&, Reply& reply) { reply.body[3] ^= 1; });

  const auto report = run();

  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().what, HasSubstr("config.json: git SHA-1 is "));
}

TEST_F(Get, MoreBytesThanListedAreAnError) {
  hub_.add_fault([](const Request&, Reply& reply) { reply.body += "more"; });

  const auto report = run();

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "digest_mismatch");
}

TEST_F(Get, FileNamesThatLeaveTheSnapshotAreRefused) {
  for (const std::string name : {"../evil", "/etc/passwd", "a/../../evil", "a//b", "a\\..\\b", "",
                                 ".", "a/.", "a\nb", "a\tb", "tail/", "\x7f"}) {
    hub_.extra_names = {name};
    const auto report = run();
    ASSERT_FALSE(report) << name;
    EXPECT_THAT(report.error().what, HasSubstr("unsafe file name"));
  }
  hub_.extra_names = {std::string("a\0b", 3)};
  EXPECT_FALSE(run());
  EXPECT_FALSE(fs::exists(repo()));
}

TEST_F(Get, HostileListingsAreErrors) {
  for (const std::string body :
       {"[]", "{", "{\"sha\": \"../../x\", \"siblings\": []}", "{\"sha\": 1}",
        "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\"}",
        "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\", \"siblings\": [1]}",
        "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\", \"siblings\": "
        "[{\"rfilename\": \"a\", \"size\": 3, \"blobId\": \"../../a\"}]}",
        "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\", \"siblings\": "
        "[{\"rfilename\": \"a\"}, {\"rfilename\": \"a\"}]}"}) {
    hub_.listing_body = body;
    EXPECT_FALSE(run()) << body;
  }
}

TEST_F(Get, AccessRefusedSaysWhatToDo) {
  hub_.token = "hf_secret";
  HubOptions options = hub_.options(folder_.path());

  const auto anonymous = get(options, request());
  options.token = "hf_secret";
  const auto known = get(options, request());

  ASSERT_FALSE(anonymous);
  EXPECT_EQ(anonymous.error().id, "gated_repository");
  EXPECT_THAT(anonymous.error().what, HasSubstr("HTTP 401: Access is restricted."));
  EXPECT_THAT(anonymous.error().what, EndsWith("set HF_TOKEN"));
  EXPECT_TRUE(known) << known.error().what;
}

TEST_F(Get, NoSuchRepositoryIsNotFound) {
  const auto report = get(hub_.options(folder_.path()), request("org/other"));

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::not_found);
}

TEST_F(Get, TooManyRequestsIsTriedAgain) {
  hub_.add_fault([](const Request&, Reply& reply) { reply = {429, {}, ""}; });

  EXPECT_TRUE(run());
  EXPECT_EQ(hub_.file_requests().size(), 2u);
}

TEST_F(Get, TheTokenStaysWithTheEndpointsOrigin) {
  FakeHub storage;
  storage.add(weights_);
  hub_.add(weights_);
  hub_.token = "hf_secret";
  hub_.storage_url = storage.server().url("localhost");
  HubOptions options = hub_.options(folder_.path());
  options.token = "hf_secret";

  const auto report = get(options, request());

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(file_text(in_snapshot("model.safetensors")), weights_.bytes);
  ASSERT_EQ(storage.file_requests().size(), 1u);
  EXPECT_EQ(storage.file_requests()[0].header("authorization"), "");
  for (const Request& r : hub_.server().requests())
    EXPECT_EQ(r.header("authorization"), "Bearer hf_secret");
}

TEST_F(Get, ResumesThroughARedirect) {
  FakeHub storage;
  storage.add(weights_);
  hub_.add(weights_);
  hub_.storage_url = storage.server().url();  // same host, other port: another origin
  storage.add_fault([](const Request&, Reply& reply) { reply.cut_after = 777; });

  ASSERT_TRUE(run());
  ASSERT_EQ(storage.file_requests().size(), 2u);
  EXPECT_EQ(storage.file_requests()[1].header("range"), "bytes=777-");
}

TEST_F(Get, EndlessRedirectsAreAnError) {
  hub_.add(weights_);
  hub_.storage_url = hub_.server().url();

  const auto report = run();

  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().what, HasSubstr("redirects"));
}

TEST_F(Get, TakesDigestsFromTheFilesWhenTheListingLacksThem) {
  FakeHub storage;
  storage.add(weights_);
  hub_.add(weights_);
  hub_.lists_blobs = false;
  hub_.storage_url = storage.server().url();

  const auto report = run();

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(report->total_bytes, config_.bytes.size() + weights_.bytes.size());
  EXPECT_TRUE(fs::exists(repo() / "blobs" / weights_.id()));
  EXPECT_TRUE(fs::exists(repo() / "blobs" / config_.id()));
}

TEST_F(Get, TwoCallsAtOnceFetchEveryBlobOnce) {
  hub_.add(weights_);
  for (int i = 0; i < 2; ++i)
    hub_.add_fault([](const Request&, Reply& reply) {
      reply.piece_bytes = 20'000;
      reply.delay = std::chrono::milliseconds(10);
    });

  Result<GetReport> first{GetReport{}}, second{GetReport{}};
  std::thread other([&] { first = run(); });
  second = run();
  other.join();

  ASSERT_TRUE(first) << first.error().what;
  ASSERT_TRUE(second) << second.error().what;
  EXPECT_EQ(hub_.file_requests().size(), 2u);
  EXPECT_EQ(first->fetched_bytes + second->fetched_bytes,
            config_.bytes.size() + weights_.bytes.size());
}

TEST_F(Get, WaitsForALiveLockAndStealsADeadOne) {
  const fs::path locks = folder_.path() / "hub/.locks/models--org--tiny";
  const fs::path lock = locks / (config_.id() + ".kvasir");
  testing::write_text(lock, std::to_string(::getpid()));
  HubOptions options = hub_.options(folder_.path());
  options.lock_limit = std::chrono::seconds(0);

  const auto held = get(options, request());
  fs::last_write_time(lock, fs::file_time_type::clock::now() - std::chrono::minutes(61));
  const auto stolen = get(options, request());

  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, Errc::capacity);
  EXPECT_THAT(held.error().what, HasSubstr("held by process"));
  EXPECT_TRUE(stolen) << stolen.error().what;
  EXPECT_FALSE(fs::exists(lock));
}

TEST_F(Get, WaitsForADownloadOfHuggingfaceHubItself) {
  const fs::path locks = folder_.path() / "hub/.locks/models--org--tiny";
  fs::create_directories(locks);
  const auto theirs = take_flock(locks / (config_.id() + ".lock"), {});
  HubOptions options = hub_.options(folder_.path());
  options.lock_limit = std::chrono::seconds(0);

  EXPECT_EQ(get(options, request()).error().code, Errc::capacity);
}

TEST_F(Get, StopsWhenCancelledAndKeepsWhatItHas) {
  hub_.add(weights_);
  hub_.add_fault([](const Request&, Reply&) {});
  hub_.add_fault([](const Request&, Reply& reply) {
    reply.piece_bytes = 1000;
    reply.delay = std::chrono::milliseconds(5);
  });
  std::atomic<bool> cancel{false};
  GetRequest wanted = request();
  wanted.cancel = &cancel;
  wanted.progress = [&](const Progress& p) { cancel = p.done > config_.bytes.size() + 3000; };

  const auto report = get(hub_.options(folder_.path()), wanted);

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::cancelled);
  EXPECT_GT(fs::file_size(repo() / "blobs" / (weights_.id() + ".incomplete")), 3000u);
  EXPECT_TRUE(run());
}

TEST_F(Get, ProgressEndsAtTheTotal) {
  hub_.add(weights_);
  std::uint64_t done = 0, total = 0;
  GetRequest wanted = request();
  wanted.progress = [&](const Progress& p) {
    EXPECT_GE(p.done, done);
    done = p.done;
    total = p.total;
  };

  ASSERT_TRUE(get(hub_.options(folder_.path()), wanted));
  EXPECT_EQ(done, config_.bytes.size() + weights_.bytes.size());
  EXPECT_EQ(total, done);
}

TEST_F(Get, ADryRunWritesNothing) {
  hub_.add(weights_);
  GetRequest wanted = request();
  wanted.is_dry_run = true;

  const auto report = get(hub_.options(folder_.path()), wanted);

  ASSERT_TRUE(report);
  EXPECT_EQ(report->files.size(), 2u);
  EXPECT_FALSE(fs::exists(folder_.path() / "hub"));
}

TEST_F(Get, AnEmptyFileNeedsNoRequest) {
  hub_.add({"empty.txt", "", false});

  ASSERT_TRUE(run());
  EXPECT_EQ(fs::read_symlink(in_snapshot("empty.txt")),
            "../../blobs/e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST_F(Get, ACommitAskedForByNameGetsARef) {
  const auto report = get(hub_.options(folder_.path()), request("org/tiny@" + kCommit));

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(file_text(repo() / "refs" / kCommit), kCommit);
  EXPECT_FALSE(fs::exists(repo() / "refs/main"));
}

TEST_F(Get, NamesThatAreNoRepositoriesAreRefused) {
  for (const char* name : {"", "a/b/c", "../x", "a--b/c", "org/x@../y", "org/x@", "-a/b", "a b"})
    EXPECT_FALSE(get(hub_.options(folder_.path()), request(name))) << name;
  EXPECT_TRUE(hub_.server().requests().empty());
}

TEST_F(Get, NothingListeningIsAnErrorNotAHang) {
  HubOptions options = hub_.options(folder_.path());
  options.endpoint = "http://127.0.0.1:1";

  const auto report = get(options, request());

  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::io);
}

}  // namespace
}  // namespace kvasir::hub
