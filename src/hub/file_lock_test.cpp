#include "hub/detail/file_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "hub/testing/fake_hub.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;
using testing::file_text;
using testing::TempFolder;
using testing::write_text;

// SRV-80: O_EXCL lock, stolen when its process is dead or it is over an hour old.
class Lock : public ::testing::Test {
 protected:
  Result<FileLock> acquire(std::chrono::seconds limit = std::chrono::seconds(0)) {
    return FileLock::acquire(path_, {nullptr, std::chrono::milliseconds(1), limit});
  }
  static long dead_pid() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
  }
  void make_old() const {
    fs::last_write_time(path_, fs::file_time_type::clock::now() - std::chrono::minutes(61));
  }

  TempFolder folder_;
  const fs::path path_ = folder_.path() / "x.lock";
};

TEST_F(Lock, NamesItsProcessAndGoesWithItsOwner) {
  {
    const auto lock = acquire();
    ASSERT_TRUE(lock);
    EXPECT_TRUE(file_text(path_).starts_with(std::to_string(::getpid()) + " "));
    EXPECT_TRUE(is_lock_alive(path_));
  }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Lock, OfALiveProcessIsWaitedFor) {
  write_text(path_, std::to_string(::getpid()));

  const auto lock = acquire();

  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, Errc::capacity);
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(Lock, OfADeadProcessIsStolen) {
  write_text(path_, std::to_string(dead_pid()));

  EXPECT_TRUE(acquire());
}

TEST_F(Lock, OfAProcessIdGivenOutAgainIsStolen) {
  write_text(path_, std::to_string(::getpid()) + " 1");  // started one tick after boot

  EXPECT_TRUE(acquire());
}

TEST_F(Lock, OverAnHourOldIsStolenEvenFromTheLiving) {
  write_text(path_, std::to_string(::getpid()));
  make_old();

  EXPECT_FALSE(is_lock_alive(path_));
  EXPECT_TRUE(acquire());
}

TEST_F(Lock, OfAnotherMachineIsJudgedByItsAgeAlone) {
  write_text(path_, std::to_string(dead_pid()) + " 5 some-other-host 0\n");

  EXPECT_FALSE(acquire());
  make_old();
  EXPECT_TRUE(acquire());
}

TEST_F(Lock, WithoutAnOwnerIsJudgedByItsAgeAlone) {
  write_text(path_, "");

  EXPECT_FALSE(acquire());
  make_old();
  EXPECT_TRUE(acquire());
}

TEST_F(Lock, AStolenLockIsNotRemovedByWhoLostIt) {
  auto lost = acquire();
  ASSERT_TRUE(lost);
  make_old();
  const auto thief = acquire();
  ASSERT_TRUE(thief);

  { const FileLock gone = *std::move(lost); }

  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(Lock, IsHeldByOneThreadAtATime) {
  std::atomic<int> n_inside{0}, n_done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        const auto lock = acquire(std::chrono::seconds(20));
        ASSERT_TRUE(lock);
        EXPECT_EQ(++n_inside, 1);
        --n_inside;
        ++n_done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(n_done, 80);
}

TEST_F(Lock, ManyThievesLeaveOneOwner) {
  const long dead = dead_pid();
  for (int round = 0; round < 20; ++round) {
    write_text(path_, std::to_string(dead));
    std::atomic<int> n_inside{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const auto lock = acquire(std::chrono::seconds(20));
        ASSERT_TRUE(lock);
        EXPECT_EQ(++n_inside, 1);
        --n_inside;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace kvasir::hub
