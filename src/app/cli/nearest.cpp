#include "app/cli/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace kvasir::app {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> known_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  const auto chosen = app.get_subcommands();
  for (const CLI::Option* option : (chosen.empty() ? &app : chosen.back())->get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::string nearest_name(const CLI::App& app, const std::string& typed) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, typed.size() / 3) + 1;
  for (const auto& name : known_names(app)) {
    const std::size_t distance = edit_distance(typed.substr(0, 64), name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace kvasir::app
