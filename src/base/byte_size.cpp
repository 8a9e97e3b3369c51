#include "base/byte_size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

namespace kvasir {
namespace {

struct Suffix {
  std::string_view name;  // lower case
  std::uint64_t bytes;
};
constexpr std::array<Suffix, 9> kSuffixes{{{"b", 1},
                                           {"kb", 1'000},
                                           {"mb", 1'000'000},
                                           {"gb", kGigabyte},
                                           {"tb", 1'000 * kGigabyte},
                                           {"kib", std::uint64_t{1} << 10},
                                           {"mib", std::uint64_t{1} << 20},
                                           {"gib", kGibibyte},
                                           {"tib", std::uint64_t{1} << 40}}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> unit_of(std::string_view suffix, std::uint64_t without) {
  if (suffix.empty()) return without;
  const auto same = [](char typed, char name) { return (typed | 0x20) == name; };
  for (const Suffix& s : kSuffixes) {
    if (std::equal(suffix.begin(), suffix.end(), s.name.begin(), s.name.end(), same))
      return s.bytes;
  }
  return std::nullopt;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view flag, std::string_view text, std::uint64_t unit) {
  const Error refusal = invalid("--" + std::string(flag) + " must be a size ≥ 0");
  const std::string_view all = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  if (error != std::errc{} || !(number >= 0) || std::signbit(number)) return refusal;
  const auto n_read = static_cast<std::size_t>(end - all.data());
  const auto factor = unit_of(trimmed(all.substr(n_read)), unit);
  if (!factor) return refusal;
  const double bytes = std::round(number * static_cast<double>(*factor));
  if (!(bytes < 0x1p63)) return refusal;
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t size_bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(size_bytes);
  std::size_t unit = 0;
  // 999.5 would print as "1000", so it belongs to the next unit.
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, kUnits[unit]);
  return text.data();
}

}  // namespace kvasir
