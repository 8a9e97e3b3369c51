// Values for flags from the environment and a file (SRV-91): flag > KVASIR_* > --config > default.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvasir::app {

// Every long flag of the verb also reads KVASIR_ and its name in capitals.
void read_environment(CLI::App& verb);

// Adds to `args` what the --config file (TOML or INI; `[verb]` sections or none) says of flags that
// neither args nor the environment give. Errors: a file that cannot be read or parsed.
Status append_config(std::vector<std::string>& args, const CLI::App& app);

}  // namespace kvasir::app
