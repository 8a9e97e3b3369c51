// Flags as mlx_lm.server and llama-server spell them (SRV-92), turned into ours before parsing.
#pragma once

#include <string>
#include <vector>

namespace kvasir::app {

// argv without the program's name. Spellings such as -np become ours; flags that have no meaning
// here
// (-ngl, --jinja, …) are dropped with a note on stderr. `serve` is put in front when no verb is
// named.
std::vector<std::string> normalized_arguments(int argc,
                                              const char* const* argv,
                                              const std::vector<std::string>& verbs);

}  // namespace kvasir::app
