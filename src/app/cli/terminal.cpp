#include "app/cli/terminal.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

constexpr int kBarWidth = 30;

std::atomic<bool> interrupted{false};

void on_interrupt(int) {
  if (interrupted.exchange(true)) std::_Exit(kExitInterrupted);
}

void draw(const Progress& p, int percent) {
  const int filled = kBarWidth * percent / 100;
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kBarWidth - filled), '.');
  std::fprintf(stderr, "\r%.*s [%s] %3d %%", static_cast<int>(p.stage.size()), p.stage.data(),
               bar.c_str(), percent);
  if (percent == 100) std::fprintf(stderr, "\r\033[K");
}

}  // namespace

ProgressSink make_progress_bar() {
  if (!isatty(STDERR_FILENO)) return {};
  const auto last = std::make_shared<int>(-1);  // shared: std::function copies its target
  return [last](const Progress& p) {
    const int percent = p.total == 0 ? 100 : static_cast<int>(100 * p.done / p.total);
    if (percent == *last) return;
    *last = percent;
    draw(p, percent);
  };
}

std::function<void(std::uint64_t, std::uint64_t)> make_prompt_bar() {
  constexpr std::uint64_t kLongPrompt = 512;
  if (!isatty(STDERR_FILENO)) return {};
  return [is_drawn = false](std::uint64_t fed, std::uint64_t total) mutable {
    if (total == 0 || (fed + kLongPrompt > total && !is_drawn)) return;
    is_drawn = fed < total;
    draw({"reading the prompt", fed, total}, static_cast<int>(100 * fed / total));
  };
}

const std::atomic<bool>& catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  return interrupted;
}

void clear_interrupt() { interrupted = false; }

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }

}  // namespace kvasir::app
