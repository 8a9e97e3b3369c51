#include "app/cli/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/file.h"

namespace kvasir::app {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

std::string variable_of(const std::string& long_name) {
  std::string out = "KVASIR_";
  for (const char c : long_name)
    out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

bool is_given(const std::vector<std::string>& args, const CLI::Option& option) {
  for (const std::string& name : option.get_lnames()) {
    const std::string flag = "--" + name;
    for (const std::string& arg : args) {
      if (arg == flag || arg.starts_with(flag + "=")) return true;
    }
  }
  for (const std::string& name : option.get_snames()) {
    for (const std::string& arg : args) {
      if (arg.size() >= 2 && arg[0] == '-' && arg[1] == name[0]) return true;
    }
  }
  const std::string variable = option.get_envname();
  return !variable.empty() && std::getenv(variable.c_str()) != nullptr;
}

std::string path_of(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--config" && i + 1 < args.size()) return args[i + 1];
    if (args[i].starts_with("--config=")) return args[i].substr(9);
  }
  const char* variable = std::getenv("KVASIR_CONFIG");
  return variable ? variable : "";
}

}  // namespace

void read_environment(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options()) {
    const auto& names = option->get_lnames();
    if (!names.empty() && names.front() != "help") option->envname(variable_of(names.front()));
  }
}

Status append_config(std::vector<std::string>& args, const CLI::App& app) {
  const std::string path = path_of(args);
  if (path.empty() || args.empty()) return {};
  const auto verbs =
      app.get_subcommands([&](const CLI::App* verb) { return verb->check_name(args.front()); });
  if (verbs.empty()) return {};
  const CLI::App* verb = verbs.front();
  if (verb->get_name() == "synth") return {};  // its --config is a model's
  KVASIR_TRY(const std::string text, read_file(path, kMaxConfigBytes));
  std::istringstream stream(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error& error) {
    return invalid(path + ": " + error.what());
  }
  for (const CLI::ConfigItem& item : items) {
    if (!item.parents.empty() && item.parents.front() != verb->get_name()) continue;
    const CLI::Option* option = verb->get_option_no_throw("--" + item.name);
    if (!option) {
      if (item.name == "++" || item.name == "--") continue;  // section marks of the reader
      return invalid(path + ": kvasir " + verb->get_name() + " has no flag --" + item.name);
    }
    if (is_given(args, *option)) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    if (is_flag && item.inputs == std::vector<std::string>{"true"})
      args.push_back("--" + item.name);
    if (is_flag) continue;
    for (const std::string& value : item.inputs) {
      args.push_back("--" + item.name);
      args.push_back(value);
    }
  }
  return {};
}

}  // namespace kvasir::app
