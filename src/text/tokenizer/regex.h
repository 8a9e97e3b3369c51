// A compiled pattern with Oniguruma's meaning, run by PCRE2. Work is bounded: a text on which the
// pattern blows up is an error, not a hang. Immutable after compile; find_all may run on many
// threads at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text::tok {

struct Range {
  std::size_t begin = 0;  // bytes, half open
  std::size_t end = 0;
};

class Regex {
 public:
  static Result<Regex> compile(
      std::string_view oniguruma);  // error: invalid_argument, names the pattern
  static Result<Regex> literal(std::string_view text);  // matches text itself

  // All matches from left to right, empty ones included (never right after another match). text is
  // valid UTF-8.
  Status find_all(std::string_view text, std::vector<Range>& out) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  Status search(std::string_view text, std::vector<Range>& out) const;
  std::shared_ptr<const Code> code_;  // shared by copies of this pattern
};

}  // namespace kvasir::text::tok
