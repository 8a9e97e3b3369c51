// The terminal: a progress bar on stderr (only when it is a terminal) and Ctrl-C as a flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/progress.h"

namespace kvasir::app {

ProgressSink make_progress_bar();
// The same for a long prompt's prefill; short prompts draw nothing.
std::function<void(std::uint64_t fed, std::uint64_t total)> make_prompt_bar();

// Ctrl-C raises the flag; a second Ctrl-C before clear_interrupt() ends the process with exit code
// 130.
const std::atomic<bool>& catch_interrupts();
void clear_interrupt();

bool stdout_is_terminal();

}  // namespace kvasir::app
