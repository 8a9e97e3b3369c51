#include "json/json.h"

#include <gtest/gtest.h>

namespace kvasir::json {
namespace {

TEST(Json, KeepsMemberOrderAndRoundTrips) {
  const std::string text = R"({"z":1,"a":[true,null,-2.5,"é\"\n"],"m":{}})";
  EXPECT_EQ(write(*parse(text)), text);
}

TEST(Json, GivesTheLastOfEqualNamesButKeepsBoth) {
  const auto v = parse(R"({"w":1,"w":2})");
  EXPECT_EQ(v->int_or("w", 0), 2);
  EXPECT_EQ(v->as_object()->size(), 2u);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "nul", "1e999", "\"\xff\"", "[1] 2"})
    EXPECT_FALSE(parse(text)) << text;
}

TEST(Json, RefusesDeepNesting) {
  EXPECT_TRUE(parse(std::string(100, '[') + std::string(100, ']')));
  EXPECT_FALSE(parse(std::string(100000, '[') + std::string(100000, ']')));
}

TEST(Json, ReadsIntegralDoublesAsIntegers) {
  EXPECT_EQ(parse(R"({"rope_theta":1e6})")->int_or("rope_theta", 0), 1000000);
}

TEST(Json, KeepsEveryUnsigned64BitInteger_SAMP_22) {
  const std::string text = R"([9223372036854775808,18446744073709551615,9007199254740993])";
  const auto v = parse(text);
  ASSERT_TRUE(v) << v.error().what;
  EXPECT_EQ(*(*v->as_array())[1].as_uint(), 0xFFFFFFFFFFFFFFFFull);
  EXPECT_TRUE((*v->as_array())[1].is_number());
  EXPECT_EQ(write(*v), text);
}

TEST(Json, ReadsIntegersBeyond64BitsAsDoubles) {
  const auto v = parse(
      R"({"a":1000000000000000019884624838656,"s":"\"99999999999999999999","b":9223372036854775807,)"
      R"("c":-99999999999999999999})");
  ASSERT_TRUE(v) << v.error().what;
  EXPECT_EQ(v->number_or("a", 0), 1e30);
  EXPECT_EQ(v->string_or("s", ""), "\"99999999999999999999");
  EXPECT_EQ(v->int_or("b", 0), 9223372036854775807);
  EXPECT_EQ(v->number_or("c", 0), -1e20);
  EXPECT_FALSE(parse("[01000000000000000019884624838656]"));
  EXPECT_FALSE(parse("[1" + std::string(400, '0') + "]")) << "beyond f64";
}

TEST(Json, WritesShortestDoubles) {
  EXPECT_EQ(write(Value(0.1)) + write(Value(1e300)) + write(Value(3.0)), "0.11e+3003.0");
}

}  // namespace
}  // namespace kvasir::json
