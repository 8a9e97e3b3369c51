#include "text/eos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir::text {
namespace {

json::Value value(std::string_view text) { return *json::parse(text); }

TEST(EosIds, AreTheUnionOfAllSources_TXT12) {
  const json::Value config = value(R"({"eos_token_id":5,"text_config":{"eos_token_id":[9,1]}})");
  const json::Value generation = value(R"({"eos_token_id":[5,7]})");
  const std::vector<TokenId> family = {106};

  const auto ids = eos_ids({&config, &generation, 1, family});

  ASSERT_TRUE(ids);
  EXPECT_THAT(*ids, testing::ElementsAre(1, 5, 7, 9, 106));
}

TEST(EosIds, AbsentAndNullMembersAddNothing) {
  const json::Value config = value(R"({"eos_token_id":null})");

  EXPECT_THAT(*eos_ids({.config = &config}), testing::IsEmpty());
  EXPECT_THAT(*eos_ids({}), testing::IsEmpty());
}

TEST(EosIds, RefusesWhatIsNoId) {
  for (const char* text : {R"({"eos_token_id":"2"})", R"({"eos_token_id":-1})",
                           R"({"eos_token_id":[1,1.5]})", R"({"eos_token_id":99999999999})"}) {
    const json::Value config = value(text);
    EXPECT_FALSE(eos_ids({.generation_config = &config})) << text;
  }
}

}  // namespace
}  // namespace kvasir::text
