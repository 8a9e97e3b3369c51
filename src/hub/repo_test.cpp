#include "hub/repo.h"

#include <gtest/gtest.h>

namespace kvasir::hub {
namespace {

const std::string kSomeCommit(40, 'c');

TEST(Repo, ParsesNamesRevisionsAndAddresses) {
  EXPECT_EQ(parse_repo("org/name")->repo, "org/name");
  EXPECT_EQ(parse_repo("org/name")->revision, "main");
  EXPECT_EQ(parse_repo("org/name@refs/pr/1")->revision, "refs/pr/1");
  EXPECT_EQ(parse_repo("https://huggingface.co/org/name@v1.0")->repo, "org/name");
  EXPECT_EQ(parse_repo("hf.co/gpt2")->repo, "gpt2");
}

TEST(Repo, RefusesWhatCouldLeaveTheCache) {
  for (const char* name : {"..", ".", "a/..", "../a", "a/b/c", "a--b", "a/b--c", "/a", "a/", "a\\b",
                           "a b", ".a/b", "a/b."})
    EXPECT_FALSE(is_repo_name(name)) << name;
  for (const char* revision : {"", "..", "a/../b", "/a", "a/", "a//b", ".a", "a/.b", "a b", "a\nb"})
    EXPECT_FALSE(is_revision(revision)) << revision;
  EXPECT_FALSE(is_repo_name(std::string(97, 'a')));
}

TEST(Repo, FolderNamesGoThereAndBack) {
  EXPECT_EQ(folder_of("org/name"), "models--org--name");
  EXPECT_EQ(folder_of("gpt2"), "models--gpt2");
  EXPECT_EQ(repo_of("models--org--name"), "org/name");
  EXPECT_EQ(repo_of("models--gpt2"), "gpt2");
  EXPECT_EQ(repo_of("models--a--b--c"), std::nullopt);
  EXPECT_EQ(repo_of("datasets--a--b"), std::nullopt);
}

TEST(Repo, FindsTheSnapshotThatAPathIsIn) {
  const auto place = place_of("/c/models--org--name/snapshots/" + kSomeCommit + "/sub/x.gguf");

  ASSERT_TRUE(place);
  EXPECT_EQ(place->repo_path, "/c/models--org--name");
  EXPECT_EQ(place->repo, "org/name");
  EXPECT_EQ(place->commit, kSomeCommit);
  EXPECT_FALSE(place_of("/c/models--org--name/blobs/x"));
  EXPECT_FALSE(place_of("/"));
}

}  // namespace
}  // namespace kvasir::hub
