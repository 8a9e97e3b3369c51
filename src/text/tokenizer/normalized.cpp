#include "text/tokenizer/normalized.h"

#include <algorithm>

namespace kvasir::text::tok {

void Rewriter::emit(std::string_view bytes, std::size_t begin, std::size_t end) {
  out_ += bytes;
  if (n_.allowed.empty()) return;
  if (begin == end) end = std::min(begin + 1, in_.size());
  const bool is_allowed = n_.may_be_special(begin, end);
  allowed_.insert(allowed_.end(), bytes.size(), is_allowed ? 1 : 0);
}

void Rewriter::keep(std::size_t begin, std::size_t end) {
  out_ += in_.substr(begin, end - begin);
  if (n_.allowed.empty()) return;
  const auto from = n_.allowed.begin();
  allowed_.insert(allowed_.end(), from + static_cast<std::ptrdiff_t>(begin),
                  from + static_cast<std::ptrdiff_t>(end));
}

void Rewriter::drop(std::size_t begin, std::size_t end) {
  if (out_.empty() && end > begin) n_.is_from_start = false;
}

void Rewriter::trim_end(std::string_view suffix) {
  while (out_.ends_with(suffix)) out_.resize(out_.size() - suffix.size());
  if (!n_.allowed.empty()) allowed_.resize(out_.size());
}

void Rewriter::finish() {
  n_.text = std::move(out_);
  if (n_.allowed.empty()) return;
  if (allowed_.empty()) n_.all_allowed = false;
  n_.allowed = std::move(allowed_);
}

}  // namespace kvasir::text::tok
