#include <algorithm>

#include "text/tokenizer/regex_syntax.h"

namespace kvasir::text::tok {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

}  // namespace

CodeSet unite(const CodeSet& a, const CodeSet& b) {
  CodeSet all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end());
  CodeSet out;
  for (const CodeRange& r : all) {
    if (!out.empty() && r.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, r.second);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

CodeSet complement(const CodeSet& a) {
  CodeSet out;
  char32_t next = 0;
  for (const CodeRange& r : a) {
    if (r.first > next) out.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= kLastCodePoint) out.emplace_back(next, kLastCodePoint);
  return out;
}

CodeSet intersect(const CodeSet& a, const CodeSet& b) {
  return complement(unite(complement(a), complement(b)));
}

}  // namespace kvasir::text::tok
