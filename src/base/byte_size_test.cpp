#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

std::uint64_t size_of_flag(std::string_view text, std::uint64_t unit = kGigabyte) {
  const auto size = parse_size("memory-budget", text, unit);
  EXPECT_TRUE(size) << text;
  return size ? *size : 0;
}

// FIT-30
TEST(ByteSize, ReadsTheUnitTableOfFit30) {
  EXPECT_EQ(size_of_flag("8"), 8'000'000'000u);
  EXPECT_EQ(size_of_flag("0.5"), 500'000'000u);
  EXPECT_EQ(size_of_flag("8", kGibibyte), 8ull << 30);
  EXPECT_EQ(size_of_flag("2kB"), 2'000u);
  EXPECT_EQ(size_of_flag("2MB"), 2'000'000u);
  EXPECT_EQ(size_of_flag("2GB", kGibibyte), 2'000'000'000u);
  EXPECT_EQ(size_of_flag("2TB"), 2'000'000'000'000u);
  EXPECT_EQ(size_of_flag("2KiB"), 2u << 10);
  EXPECT_EQ(size_of_flag("1.5MiB"), 1'572'864u);
  EXPECT_EQ(size_of_flag("3GiB"), 3ull << 30);
  EXPECT_EQ(size_of_flag("1TiB"), 1ull << 40);
  EXPECT_EQ(size_of_flag("4gib"), 4ull << 30);
  EXPECT_EQ(size_of_flag("4 Gb"), 4'000'000'000u);
  EXPECT_EQ(size_of_flag("0"), 0u);
}

// FIT-31
TEST(ByteSize, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "-1", "-0", "nan", "inf", "GB", "4G", "4 XB", "4GBs", "1e300", "x"}) {
    const auto size = parse_size("kv-budget", text, kGigabyte);

    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().what, "--kv-budget must be a size ≥ 0");
  }
}

TEST(ByteSize, PrintsThreeDigitsAndTheDecimalUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1'000), "1.00 kB");
  EXPECT_EQ(format_bytes(789'400), "789 kB");
  EXPECT_EQ(format_bytes(999'600), "1.00 MB");
  EXPECT_EQ(format_bytes(45'640'000), "45.6 MB");
  EXPECT_EQ(format_bytes(1'234'000'000), "1.23 GB");
  EXPECT_EQ(format_bytes(12'340'000'000'000), "12.3 TB");
}

}  // namespace
}  // namespace kvasir
