#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/detail/gguf_builder.h"
#include "formats/detail/test_files.h"

namespace kvasir::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::string& file) {
  const auto content = parse_gguf(as_byte_span(file));
  return content ? "accepted" : content.error().what;
}

TEST(Gguf, GivesMetadataAndTensors) {
  GgufBuilder file;
  file.text("general.architecture", "llama").number<std::uint32_t>("a.n", GgufKind::u32, 7);
  file.number<float>("a.x", GgufKind::f32, 0.5f).number<std::uint8_t>("a.b", GgufKind::boolean, 1);
  file.texts("a.list", {"x", "", "yz"}).numbers<std::int32_t>("a.ints", GgufKind::i32, {1, -2});
  file.tensor("t", 0, {3, 2}, bytes_of_values<float>({1, 2, 3, 4, 5, 6}));
  const std::string bytes = file.bytes();

  const auto content = parse_gguf(as_byte_span(bytes));

  ASSERT_TRUE(content) << content.error().what;
  EXPECT_EQ(content->text_or("general.architecture", ""), "llama");
  EXPECT_EQ(content->whole_or("a.n", 0), 7u);
  EXPECT_EQ(content->number_or("a.x", 0), 0.5);
  EXPECT_EQ(json::write(content->find("a.b")->to_json()), "true");
  EXPECT_EQ(json::write(content->find("a.list")->to_json()), R"(["x","","yz"])");
  EXPECT_EQ(json::write(content->find("a.ints")->to_json()), "[1,-2]");
  EXPECT_THAT(content->find("a.ints")->numbers(), ElementsAre(1.0, -2.0));
  ASSERT_EQ(content->tensors.size(), 1u);
  EXPECT_THAT(content->tensors[0].shape, ElementsAre(2u, 3u));  // outermost first
  EXPECT_EQ(std::memcmp(content->tensors[0].bytes.data(), bytes_of_values<float>({1}).data(), 4),
            0);
}

TEST(Gguf, RefusesImpossibleDimensionsByTensorName_C41) {
  const auto with_dims = [](const std::vector<std::uint64_t>& dims) {
    GgufBuilder file;
    file.tensor("t", 1, dims, "");
    return error_of(file.bytes());
  };
  EXPECT_EQ(with_dims({4, 0, 2}), "tensor 't' has a dimension of size 0");
  EXPECT_THAT(with_dims({}), HasSubstr("tensor 't' has 0 dimensions"));
  EXPECT_THAT(with_dims({1, 1, 1, 1, 1}), HasSubstr("tensor 't' has 5 dimensions"));
  EXPECT_THAT(with_dims({1ull << 40, 1ull << 40}), HasSubstr("tensor 't': impossibly many"));
  EXPECT_THAT(with_dims({1ull << 63}), HasSubstr("tensor 't': impossibly many bytes"));
  EXPECT_THAT(with_dims({1ull << 40}), HasSubstr("beyond the file's 0 bytes"));
}

TEST(Gguf, RefusesEmptyNames_C41) {
  GgufBuilder tensor, key;
  tensor.tensor("", 0, {1}, "1234");
  key.text("", "value");
  EXPECT_EQ(error_of(tensor.bytes()), "tensor 0 has an empty name");
  EXPECT_EQ(error_of(key.bytes()), "metadata entry 0 has an empty name");
}

TEST(Gguf, ChecksLengthsAgainstTheBytesLeftBeforeAllocating_C41) {
  GgufBuilder strings, numbers, text;
  strings.raw("k", GgufKind::array,
              bytes_of_values<std::uint32_t>({8}) + bytes_of_values<std::uint64_t>({1ull << 40}));
  numbers.raw(
      "k", GgufKind::array,
      bytes_of_values<std::uint32_t>({10}) + bytes_of_values<std::uint64_t>({(1ull << 61) + 1}));
  text.raw("k", GgufKind::string, bytes_of_values<std::uint64_t>({1ull << 62}));
  EXPECT_THAT(error_of(strings.bytes()),
              HasSubstr("metadata 'k': 1099511627776 elements with 0 bytes left"));
  EXPECT_THAT(error_of(numbers.bytes()), HasSubstr("metadata 'k': 2305843009213693953 elements"));
  EXPECT_THAT(error_of(text.bytes()), HasSubstr("metadata 'k': the file ends too early"));

  GgufBuilder empty;
  EXPECT_THAT(error_of(empty.bytes(/*n_tensors=*/0, /*n_entries=*/1ull << 60)),
              HasSubstr("1152921504606846976 metadata entries with 0 bytes left"));
  EXPECT_THAT(error_of(empty.bytes(/*n_tensors=*/1ull << 60, /*n_entries=*/0)),
              HasSubstr("1152921504606846976 tensors with 0 bytes left"));
}

TEST(Gguf, RefusesArraysInArraysAndUnknownValueTypes) {
  GgufBuilder nested, unknown;
  nested.raw("k", GgufKind::array,
             bytes_of_values<std::uint32_t>({9}) + bytes_of_values<std::uint64_t>({1}));
  unknown.raw("k", static_cast<GgufKind>(13), "x");
  EXPECT_THAT(error_of(nested.bytes()), HasSubstr("metadata 'k': an array of arrays"));
  EXPECT_THAT(error_of(unknown.bytes()), HasSubstr("metadata 'k': unknown value type 13"));
}

TEST(Gguf, RefusesDuplicatesOverlapsAndMisalignment) {
  GgufBuilder keys, names, overlap, misaligned, alignment;
  keys.text("k", "1").text("k", "2");
  names.tensor("t", 0, {1}, "1234").tensor("t", 0, {1}, "1234");
  overlap.tensor_at("a", 0, {9}, 0).tensor_at("b", 0, {1}, 32).data(std::string(64, 'x'));
  misaligned.tensor_at("a", 0, {1}, 4).data(std::string(64, 'x'));
  alignment.number<std::uint32_t>("general.alignment", GgufKind::u32, 24);
  EXPECT_EQ(error_of(keys.bytes()), "metadata key 'k' is duplicated");
  EXPECT_EQ(error_of(names.bytes()), "tensor name 't' is duplicated");
  EXPECT_THAT(error_of(overlap.bytes()), HasSubstr("tensor 'b': its data overlaps that of 'a'"));
  EXPECT_THAT(error_of(misaligned.bytes()),
              HasSubstr("tensor 'a': its offset is not aligned to 32"));
  EXPECT_THAT(error_of(alignment.bytes()), HasSubstr("not a power of two"));
}

TEST(Gguf, RefusesRowsThatAreNotWholeBlocks) {
  GgufBuilder file;
  file.tensor("t", 12, {128, 2}, std::string(144, 'x'));
  EXPECT_EQ(error_of(file.bytes()),
            "tensor 't': rows of 128 elements are not whole blocks of 256 (q4_k)");
}

TEST(Gguf, RefusesOtherVersionsAndByteOrders) {
  std::string bytes = GgufBuilder().bytes();
  bytes[4] = 1;
  EXPECT_THAT(error_of(bytes), HasSubstr("GGUF version 1"));
  bytes[4] = 0, bytes[7] = 3;
  EXPECT_THAT(error_of(bytes), HasSubstr("big-endian"));
  EXPECT_THAT(error_of("GGML"), HasSubstr("not a GGUF file"));
}

TEST(Gguf, RefusesEveryTruncation) {
  GgufBuilder file;
  file.text("k", "value").texts("list", {"a", "b"}).tensor("t", 0, {2}, "12345678");
  const std::string bytes = file.bytes();
  ASSERT_EQ(error_of(bytes), "accepted");
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_NE(error_of(bytes.substr(0, n)), "accepted") << n;
}

}  // namespace
}  // namespace kvasir::formats
