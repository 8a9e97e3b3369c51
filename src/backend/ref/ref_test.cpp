#include <gtest/gtest.h>
TEST(Ref, Placeholder) {}
