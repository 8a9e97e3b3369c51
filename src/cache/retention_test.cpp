#include "cache/retention.h"

#include <gtest/gtest.h>

namespace kvasir::cache {
namespace {

TEST(Retention, LruDropsTheLeastRecentlyUsedAndOfEqualsTheLater_CACHE21) {
  auto policy = *make_retention_policy("lru");
  RetentionEntry a{.last_used = 5}, b{.last_used = 2}, c{.last_used = 2}, d{.last_used = 9};
  const RetentionEntry* entries[] = {&a, &b, &c, &d};

  EXPECT_EQ(policy->victim(entries), 2u);
  EXPECT_EQ(policy->victim({entries, 1}), 0u);
}

TEST(Retention, CostSizeFollowsGreedyDual_CACHE22) {
  auto policy = *make_retention_policy("cost-size");
  RetentionEntry small{.bytes = 10, .cost = 100, .last_used = 1, .uses = 1};
  RetentionEntry large{.bytes = 100, .cost = 100, .last_used = 2, .uses = 1};
  RetentionEntry later{.bytes = 100, .cost = 100, .last_used = 3, .uses = 1};
  for (RetentionEntry* e : {&small, &large, &later}) policy->accessed(*e);
  EXPECT_EQ(small.priority, 10.0);
  EXPECT_EQ(large.priority, 1.0);

  const RetentionEntry* entries[] = {&small, &later, &large};
  EXPECT_EQ(policy->victim(entries), 2u);  // a tie: the older use
  policy->evicted(large);

  RetentionEntry fresh{.bytes = 0, .cost = 3, .last_used = 4, .uses = 1};
  policy->accessed(fresh);
  EXPECT_EQ(fresh.priority, 1.0 + 3.0);  // age 1, bytes count as 1
  later.uses = 2;
  policy->accessed(later);
  EXPECT_EQ(later.priority, 1.0 + 2.0);
}

TEST(Retention, UnknownPoliciesAreRefused) { EXPECT_FALSE(make_retention_policy("fifo")); }

}  // namespace
}  // namespace kvasir::cache
