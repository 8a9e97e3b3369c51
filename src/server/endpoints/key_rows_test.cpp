// --max-rows-per-key (SCH-44).
#include "server/endpoints/key_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir::server {
namespace {

HttpRequest with_key(const std::string& key) {
  HttpRequest request;
  if (!key.empty()) request.headers.emplace_back("authorization", "Bearer " + key);
  return request;
}

TEST(KeyRows, AKeyHasItsRowsAndOthersHaveTheirs_SCH_44) {
  KeyRows rows({"a", "b"}, 3);
  auto two = rows.take(with_key("a"), 2);
  ASSERT_TRUE(std::holds_alternative<KeyRows::Lease>(two));

  const auto refused = rows.take(with_key("a"), 2);
  const auto other = rows.take(with_key("b"), 3);
  std::get<KeyRows::Lease>(two).release();
  const auto again = rows.take(with_key("a"), 3);

  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status, 429);
  EXPECT_EQ(std::get<ApiError>(refused).code, "queue_full");
  EXPECT_EQ(std::get<ApiError>(refused).message,
            "this API key has 2 of the 3 rows that it may have at once");
  EXPECT_TRUE(std::holds_alternative<KeyRows::Lease>(other));
  EXPECT_TRUE(std::holds_alternative<KeyRows::Lease>(again));
}

TEST(KeyRows, RowsComeBackWhenALeaseGoesAndOnlyOnce) {
  KeyRows rows({"a"}, 1);
  {
    auto first = rows.take(with_key("a"), 1);
    KeyRows::Lease moved = std::get<KeyRows::Lease>(std::move(first));
    EXPECT_TRUE(std::holds_alternative<ApiError>(rows.take(with_key("a"), 1)));
  }
  EXPECT_TRUE(std::holds_alternative<KeyRows::Lease>(rows.take(with_key("a"), 1)));
  EXPECT_TRUE(std::holds_alternative<KeyRows::Lease>(rows.take(with_key("a"), 1)));
}

TEST(KeyRows, MoreThanAKeyMayEverHaveIsABadRequest) {
  KeyRows rows({"a"}, 2);

  const auto refused = rows.take(with_key("a"), 3);

  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status, 400);
}

TEST(KeyRows, WithoutALimitOrAKeyNothingIsBounded) {
  KeyRows unlimited({"a"}, 0), limited({"a"}, 1);
  const auto a = unlimited.take(with_key("a"), 100), b = limited.take(with_key(""), 100),
             c = limited.take(with_key("unknown"), 100);

  for (const auto* taken : {&a, &b, &c})
    EXPECT_TRUE(std::holds_alternative<KeyRows::Lease>(*taken));
}

}  // namespace
}  // namespace kvasir::server
