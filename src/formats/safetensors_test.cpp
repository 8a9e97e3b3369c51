#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/detail/test_files.h"

namespace kvasir::formats {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view header, std::string_view data) {
  const std::string file = safetensors_bytes(header, data);
  const auto content = parse_safetensors(as_byte_span(file));
  return content ? "accepted" : content.error().what;
}

std::string error_of_offsets(const std::string& offsets) {
  return error_of(R"({"w":{"dtype":"BF16","shape":[512,512],"data_offsets":)" + offsets + "}}",
                  "12345678");
}

TEST(Safetensors, GivesNamesDtypesShapesAndBytes) {
  const std::string file = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I32","shape":[],"data_offsets":[4,8]},"a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]}}  )",
      "abcdefgh");

  const auto content = parse_safetensors(as_byte_span(file));

  ASSERT_TRUE(content) << content.error().what;
  ASSERT_EQ(content->tensors.size(), 2u);
  EXPECT_EQ(content->tensors[0].name, "a");  // in the order of the data
  EXPECT_EQ(content->tensors[0].dtype, "F16");
  EXPECT_EQ(content->tensors[0].shape, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(content->tensors[1].name, "b");
  EXPECT_EQ(std::memcmp(content->tensors[1].bytes.data(), "efgh", 4), 0);
  EXPECT_EQ(content->metadata.at(0).second, "pt");
}

TEST(Safetensors, TakesNullForNoMetadataAsMlxWritesIt) {
  const std::string file = safetensors_bytes(R"({"__metadata__":null})", "");
  EXPECT_TRUE(parse_safetensors(as_byte_span(file)));
  EXPECT_THAT(error_of(R"({"__metadata__":[]})", ""), HasSubstr("__metadata__ is not an object"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", ""), HasSubstr("'a' is not a string"));
}

TEST(Safetensors, SaysThatANameIsDuplicated_C43) {
  const std::string header =
      R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  EXPECT_EQ(error_of(header, "12345678"), "tensor name 'w' is duplicated in the header");
  EXPECT_THAT(
      error_of(R"({"w":{"dtype":"F32","shape":[1],"shape":[2],"data_offsets":[0,4]}})", "12345678"),
      HasSubstr("'shape' is duplicated"));
}

TEST(Safetensors, RefusesOffsetsThatDisagreeWithShapeOrFile_C43) {
  EXPECT_THAT(error_of_offsets("[0,8]"), HasSubstr("hold 8 bytes, shape and dtype say 524288"));
  EXPECT_THAT(error_of_offsets("[0,524288]"), HasSubstr("beyond the file's 8 bytes"));
  EXPECT_THAT(error_of_offsets("[8,0]"), HasSubstr("reversed"));
  EXPECT_THAT(error_of_offsets("[-8,0]"), HasSubstr("not a whole number"));
  EXPECT_THAT(error_of_offsets("[0.0,8.0]"), HasSubstr("not a whole number"));
  EXPECT_THAT(error_of_offsets("[0,4,8]"), HasSubstr("holds 3 numbers"));
  EXPECT_THAT(error_of_offsets("[0]"), HasSubstr("holds 1 numbers"));
  EXPECT_THAT(error_of_offsets("null"), HasSubstr("not a list"));
  EXPECT_THAT(error_of_offsets("[0,18446744073709551615]"), HasSubstr("not a whole number"));
}

TEST(Safetensors, RefusesDataThatOverlaps) {
  EXPECT_THAT(
      error_of(
          R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          "12345678"),
      HasSubstr("overlaps that of 'a'"));
}

TEST(Safetensors, RefusesSizesThatOverflow) {
  EXPECT_THAT(
      error_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
      HasSubstr("impossible"));
}

TEST(Safetensors, RefusesBrokenHeaders) {
  EXPECT_THAT(error_of("[]", ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{\"a\":", ""), HasSubstr("JSON"));
  EXPECT_THAT(error_of(R"({"a":7})", ""), HasSubstr("not an object"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"Q9","shape":[],"data_offsets":[0,0]}})", ""),
              HasSubstr("unknown dtype 'Q9'"));
  EXPECT_THAT(error_of(std::string(1000, '{'), ""), HasSubstr("JSON"));
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const std::string file = bytes_of_values(std::vector<std::uint64_t>{length}) + "{}";
    EXPECT_FALSE(parse_safetensors(as_byte_span(file)));
  }
  EXPECT_FALSE(parse_safetensors({}));
}

TEST(SafetensorsFile, NamesTheFileInErrors) {
  const TestFolder folder;
  const auto path = folder.write("x.safetensors", safetensors_bytes("[]", ""));
  EXPECT_THAT(SafetensorsFile::open(path).error().what, HasSubstr("x.safetensors: "));
  EXPECT_EQ(SafetensorsFile::open(folder.path() / "absent").error().code, Errc::not_found);
  EXPECT_THAT(SafetensorsFile::open(folder.path()).error().what, HasSubstr("not a regular file"));
  EXPECT_THAT(SafetensorsFile::open(folder.write("empty", "")).error().what, HasSubstr("empty"));
}

}  // namespace
}  // namespace kvasir::formats
