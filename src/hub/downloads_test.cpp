#include "hub/downloads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "hub/testing/fake_hub.h"

namespace kvasir::hub {
namespace {

using testing::FakeHub;
using ::testing::HasSubstr;
using testing::noise;
using testing::Reply;
using testing::Request;
using testing::TempFolder;

class DownloadsTest : public ::testing::Test {
 protected:
  DownloadsTest() { hub_.add({"model.safetensors", noise(50'000, 3), true}); }

  template <class Wanted>
  static bool wait_for(const Wanted& wanted) {
    for (int i = 0; i < 1000; ++i) {
      if (wanted()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  static bool wait_for_state(const Downloads& downloads, std::uint64_t id, DownloadState state) {
    return wait_for([&] {
      for (const Download& d : downloads.list()) {
        if (d.id == id) return d.state == state;
      }
      return false;
    });
  }
  void slow_down() {
    hub_.add_fault([](const Request&, Reply& reply) {
      reply.piece_bytes = 500;
      reply.delay = std::chrono::milliseconds(10);
    });
  }

  FakeHub hub_;
  TempFolder folder_;
};

TEST_F(DownloadsTest, OneRunsToItsEndAndSaysWhereItIs) {
  std::atomic<int> n_finished{0};
  Downloads downloads(hub_.options(folder_.path()), [&](const Download& d) {
    EXPECT_EQ(d.state, DownloadState::done);
    ++n_finished;
  });

  const auto id = downloads.start({"org/tiny", {}, {}});

  ASSERT_TRUE(id);
  ASSERT_TRUE(wait_for_state(downloads, *id, DownloadState::done));
  EXPECT_TRUE(wait_for([&] { return n_finished == 1; }));
  const Download d = downloads.list().front();
  EXPECT_EQ(d.done_bytes, 50'000u);
  EXPECT_EQ(d.total_bytes, 50'000u);
  EXPECT_THAT(d.path, HasSubstr("models--org--tiny/snapshots/"));
  EXPECT_THAT(json::write(to_json(downloads.list())),
              HasSubstr("{\"downloads\":[{\"id\":1,\"repo\":\"org/tiny\",\"state\":\"done\""));
}

TEST_F(DownloadsTest, AFailureKeepsItsReason) {
  Downloads downloads(hub_.options(folder_.path()));

  const auto id = downloads.start({"org/unknown", {}, {}});

  ASSERT_TRUE(wait_for_state(downloads, *id, DownloadState::failed));
  EXPECT_THAT(downloads.list().front().error, HasSubstr("HTTP 404"));
}

TEST_F(DownloadsTest, TheSameOneIsStartedOnceAndCanBeCancelled) {
  slow_down();
  Downloads downloads(hub_.options(folder_.path()));

  const auto id = downloads.start({"org/tiny", {}, {}});
  ASSERT_TRUE(wait_for([&] { return downloads.list().front().done_bytes > 0; }));
  EXPECT_EQ(*downloads.start({"org/tiny", {}, {}}), *id);
  const auto other = downloads.start({"org/other", {}, {}});
  EXPECT_NE(*other, *id);
  EXPECT_TRUE(downloads.cancel(*other));
  EXPECT_TRUE(downloads.cancel(*id));

  EXPECT_TRUE(wait_for_state(downloads, *id, DownloadState::cancelled));
  EXPECT_TRUE(wait_for_state(downloads, *other, DownloadState::cancelled));
  EXPECT_FALSE(downloads.cancel(99));
}

TEST_F(DownloadsTest, ClosingStopsWhatRuns) {
  slow_down();
  const auto start = std::chrono::steady_clock::now();
  {
    Downloads downloads(hub_.options(folder_.path()));
    ASSERT_TRUE(downloads.start({"org/tiny", {}, {}}));
    ASSERT_TRUE(wait_for([&] { return downloads.list().front().done_bytes > 0; }));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(DownloadsTest, NamesThatAreNoRepositoriesAreRefusedAtOnce) {
  Downloads downloads(hub_.options(folder_.path()));

  EXPECT_FALSE(downloads.start({"../x", {}, {}}));
  EXPECT_TRUE(downloads.list().empty());
}

}  // namespace
}  // namespace kvasir::hub
