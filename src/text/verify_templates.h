// Renders a folder of chat templates over recorded conversations and compares with recorded
// results: what `kvasir verify templates TEMPLATEDIR CASES.json` prints. Input files are untrusted.
// No thread rule.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::text {

struct TemplateSummary {
  std::size_t n_templates = 0;
  std::size_t n_equal = 0,
              n_texts = 0;  // renderings equal byte for byte, of those that have a text
  std::size_t n_failed = 0, n_errors = 0;   // renderings that failed, of those that must
  std::size_t n_carried = 0, n_raised = 0;  // template-raised messages carried, of those errors
  bool all_good() const noexcept {
    return n_equal == n_texts && n_failed == n_errors && n_carried == n_raised;
  }
};

struct VerifyDifference {
  std::string template_name;
  std::string conversation;
  std::string what;  // one line; for texts, where they part
};
using DifferenceSink = std::function<void(const VerifyDifference&)>;

// cases: JSON as `{"now", "defaults", "conversations", "renders"}`, plain or .xz. Each template is
// TEMPLATEDIR/NAME or TEMPLATEDIR/NAME.jinja; a missing one is an error, as are unreadable cases.
// Differences go to `report` (may be empty).
Result<TemplateSummary> verify_templates(const std::filesystem::path& template_dir,
                                         const std::filesystem::path& cases_json,
                                         const DifferenceSink& report = {});

}  // namespace kvasir::text
