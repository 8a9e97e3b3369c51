#include "hub/gc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hub/detail/places.h"
#include "hub/testing/fake_hub.h"
#include "hub/use_mark.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::TempFolder;
using testing::write_text;

// SRV-82. Blobs: "a" and "shared" belong to main, "b" and "shared" to an old revision without a
// ref, "lost" to nothing.
class Gc : public ::testing::Test {
 protected:
  Gc() {
    options_.cache = folder_.path();
    for (const auto& [name, n] :
         {std::pair{"a", 10}, {"b", 200}, {"shared", 3000}, {"lost", 40'000}})
      write_text(repo_ / "blobs" / name, std::string(static_cast<std::size_t>(n), 'x'));
    (void)link_file(repo_, kMain, "config.json", "a");
    (void)link_file(repo_, kMain, "sub/model", "shared");
    (void)link_file(repo_, kOld, "config.json", "b");
    (void)link_file(repo_, kOld, "sub/model", "shared");
    (void)write_ref(repo_, "main", kMain);
  }

  static std::vector<std::string> shown(const GcPlan& plan) {
    std::vector<std::string> out;
    for (const GcItem& item : plan.items)
      out.push_back(std::string(name_of(item.kind)) + " " + item.path.filename().string() + " " +
                    std::to_string(item.size_bytes));
    return out;
  }
  fs::path put_part(const std::string& name, std::chrono::minutes age) {
    const fs::path part = repo_ / "blobs" / (name + ".incomplete");
    write_text(part, std::string(500, 'x'));
    fs::last_write_time(part, fs::file_time_type::clock::now() - age);
    return part;
  }

  TempFolder folder_;
  HubOptions options_;
  const fs::path repo_ = folder_.path() / "models--org--x";
  const std::string kMain = std::string(40, '1'), kOld = std::string(40, '2');
};

TEST_F(Gc, PlansWhatNoRefNeeds) {
  const auto plan = plan_gc(options_);

  ASSERT_TRUE(plan);
  EXPECT_THAT(shown(*plan), ElementsAre("revision " + kOld + " 200", "blob lost 40000"));
  EXPECT_EQ(plan->size_bytes, 40'200u);
  EXPECT_TRUE(fs::exists(repo_ / "blobs/lost"));
}

TEST_F(Gc, DeletesWhatThePlanShows) {
  const auto report = collect(options_, {}, *plan_gc(options_));

  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(report->freed_bytes, 40'200u);
  EXPECT_FALSE(fs::exists(repo_ / "snapshots" / kOld));
  EXPECT_FALSE(fs::exists(repo_ / "blobs/b"));
  EXPECT_FALSE(fs::exists(repo_ / "blobs/lost"));
  EXPECT_EQ(testing::file_text(repo_ / "snapshots" / kMain / "sub/model").size(), 3000u);
  EXPECT_EQ(testing::file_text(repo_ / "snapshots" / kMain / "config.json").size(), 10u);
  EXPECT_TRUE(plan_gc(options_)->items.empty());
}

TEST_F(Gc, ARepositoryInUseIsLeftAlone) {
  const auto mark = UseMark::take(repo_ / "snapshots" / kOld / "sub/model");
  ASSERT_TRUE(mark);
  ASSERT_TRUE(mark->is_held());

  const auto plan = plan_gc(options_);

  EXPECT_TRUE(plan->items.empty());
  EXPECT_THAT(plan->in_use, ElementsAre("org/x"));
}

TEST_F(Gc, WhatCameIntoUseSinceThePlanIsLeftAlone) {
  const auto plan = plan_gc(options_);
  const auto mark = UseMark::take(repo_ / "snapshots" / kOld);

  const auto report = collect(options_, {}, *plan);

  ASSERT_TRUE(report);
  EXPECT_THAT(report->in_use, ElementsAre("org/x"));
  EXPECT_TRUE(fs::exists(repo_ / "blobs/lost"));
}

TEST_F(Gc, WhatGotARefSinceThePlanIsLeftAlone) {
  const auto plan = plan_gc(options_);
  ASSERT_TRUE(write_ref(repo_, "old", kOld));
  ASSERT_TRUE(link_file(repo_, kMain, "found", "lost"));

  const auto report = collect(options_, {}, *plan);

  ASSERT_TRUE(report);
  EXPECT_EQ(report->n_deleted, 0u);
  EXPECT_TRUE(fs::exists(repo_ / "snapshots" / kOld / "config.json"));
}

TEST_F(Gc, WhatAppearedSinceThePlanIsLeftAlone) {
  const auto plan = plan_gc(options_);
  write_text(repo_ / "blobs/new", "x");

  ASSERT_TRUE(collect(options_, {}, *plan));
  EXPECT_TRUE(fs::exists(repo_ / "blobs/new"));
}

TEST_F(Gc, PartsAreTakenWhenNobodyContinuedThem) {
  put_part("fresh", std::chrono::minutes(5));
  put_part("stale", std::chrono::minutes(90));
  put_part("held", std::chrono::minutes(90));
  const fs::path locks = locks_path(options_.cache, "org/x");
  write_text(locks / "held.kvasir", std::to_string(::getpid()));

  const auto plan = plan_gc(options_);

  EXPECT_THAT(shown(*plan), ElementsAre("revision " + kOld + " 200", "blob lost 40000",
                                        "incomplete stale.incomplete 500"));
}

TEST_F(Gc, ARevisionAskedForGoesWithItsRefs) {
  GcRequest request;
  request.remove = {"org/x@main"};

  const auto plan = plan_gc(options_, request);
  const auto report = collect(options_, request, *plan);

  ASSERT_TRUE(report);
  EXPECT_EQ(report->freed_bytes, 43'210u);  // the old one goes too: it has no ref
  EXPECT_FALSE(fs::exists(repo_));
}

TEST_F(Gc, RemovingWhatIsNotThereIsAnError) {
  GcRequest request;
  request.remove = {"org/unknown"};

  EXPECT_EQ(plan_gc(options_, request).error().code, Errc::not_found);
}

TEST_F(Gc, LinksThatLeaveTheRepositoryAreNotFollowed) {
  const fs::path outside = folder_.path() / "outside";
  write_text(outside / "keep", "x");
  fs::create_directory_symlink(outside, repo_ / "snapshots" / kOld / "link");
  fs::create_symlink(outside / "keep", repo_ / "snapshots" / kOld / "file");

  ASSERT_TRUE(collect(options_, {}, *plan_gc(options_)));
  EXPECT_TRUE(fs::exists(outside / "keep"));
}

TEST_F(Gc, AnEmptyOrMissingCacheHasNoGarbage) {
  options_.cache = folder_.path() / "nowhere";

  EXPECT_TRUE(plan_gc(options_)->items.empty());
}

TEST_F(Gc, ALinkIntoTheCacheMarksItsRepository) {
  fs::create_directory_symlink(repo_ / "snapshots" / kMain, folder_.path() / "link");

  const auto mark = UseMark::take(folder_.path() / "link");

  EXPECT_TRUE(mark->is_held());
  EXPECT_FALSE(UseMark::take_alone(options_.cache, "org/x"));
}

TEST(UseMark, OutsideOfAHubCacheMarksNothing) {
  const auto mark = UseMark::take("/tmp/model.gguf");

  ASSERT_TRUE(mark);
  EXPECT_FALSE(mark->is_held());
}

TEST_F(Gc, ManyMayUseARepositoryAtOnce) {
  const auto first = UseMark::take_repo(options_.cache, "org/x");
  auto second = UseMark::take_repo(options_.cache, "org/x");

  ASSERT_TRUE(first && second);
  EXPECT_FALSE(UseMark::take_alone(options_.cache, "org/x"));
}

}  // namespace
}  // namespace kvasir::hub
