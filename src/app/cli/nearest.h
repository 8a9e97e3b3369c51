// The nearest known flag or verb to a mistyped one (SRV-91).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kvasir::app {

// "" when nothing is close. Looks at the verb in use, or at the verbs when none was recognised.
std::string nearest_name(const CLI::App& app, const std::string& typed);

}  // namespace kvasir::app
