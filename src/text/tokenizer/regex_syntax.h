// Oniguruma patterns (Ruby syntax, what tokenizer.json files are written for) rewritten for PCRE2,
// where the two give the same characters another meaning: \s \w \h \b, nested and intersected
// classes, (?m), {,n}, {n,m}+.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text::tok {

using CodeRange = std::pair<char32_t, char32_t>;  // inclusive
using CodeSet = std::vector<CodeRange>;           // ascending, apart

// Members of a PCRE2 class such as "\p{L}a-z": what the library itself thinks they are.
using ClassEvaluator = std::function<Result<CodeSet>(const std::string& class_items)>;

struct PcrePattern {
  std::string text;
  // No repeated group, no back reference and at most two unbounded repeats an alternative: cannot
  // blow up.
  bool is_tame = true;
};

Result<PcrePattern> to_pcre(std::string_view oniguruma, const ClassEvaluator& evaluate);

CodeSet unite(const CodeSet& a, const CodeSet& b);
CodeSet complement(const CodeSet& a);
CodeSet intersect(const CodeSet& a, const CodeSet& b);

}  // namespace kvasir::text::tok
