#include "app/cli/aliases.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string_view>

namespace kvasir::app {
namespace {

struct Rename {
  std::string_view from, to;
  std::string_view unit = {};  // of the value: what ours would read in another unit
};

constexpr std::array kRenames{
    Rename{"-np", "--batch"},
    Rename{"--parallel", "--batch"},
    Rename{"--decode-concurrency", "--batch"},
    Rename{"-b", "--max-step-tokens"},
    Rename{"--batch-size", "--max-step-tokens"},
    Rename{"--prefill-step-size", "--max-step-tokens"},
    Rename{"-ctk", "--cache-type-k"},
    Rename{"-ctv", "--cache-type-v"},
    Rename{"-dev", "--device"},
    Rename{"-hf", "--model"},
    Rename{"--predict", "--max-tokens"},
    Rename{"--repeat-penalty", "--repetition-penalty"},
    Rename{"--cors-origins", "--allowed-origins"},
    Rename{"--cache-ram", "--prompt-cache", "MiB"},
    Rename{"--prompt-cache-bytes", "--prompt-cache", "B"},
    Rename{"--paged-kv-block-size", "--kv-block-size"},
    Rename{"--chat-template-file", "--chat-template"},
    Rename{"--chat-template-kwargs", "--chat-template-args"},
};

enum class Value : unsigned char { none, one, on_off };

struct Dropped {
  std::string_view flag;
  Value value;
  std::string_view note;
};

constexpr std::array kDropped{
    Dropped{"-ngl", Value::one, "layers run where --backend says"},
    Dropped{"--n-gpu-layers", Value::one, "layers run where --backend says"},
    Dropped{"--gpu-layers", Value::one, "layers run where --backend says"},
    Dropped{"-fa", Value::on_off, "attention is always the flash kind"},
    Dropped{"--flash-attn", Value::on_off, "attention is always the flash kind"},
    Dropped{"-cb", Value::none, "batching is always continuous"},
    Dropped{"--cont-batching", Value::none, "batching is always continuous"},
    Dropped{"--prompt-concurrency", Value::one, "prompts share the rows of --batch"},
    Dropped{"--mmap", Value::none, "files are always mapped"},
    Dropped{"--no-mmap", Value::none, "files are always mapped"},
    Dropped{"--jinja", Value::none, "templates are always rendered"},
    Dropped{"--metrics", Value::none, "/metrics is always there"},
    Dropped{"--paged-kv", Value::none, "KV state is always paged"},
    Dropped{"--in-process", Value::none, "the engine always runs in this process"},
    Dropped{"--trust-remote-code", Value::none, "kvasir never runs model code"},
};

bool is_on_off(std::string_view text) { return text == "on" || text == "off" || text == "auto"; }

std::optional<std::size_t> dropped_at(const std::vector<std::string>& args, std::size_t i) {
  const std::string_view flag = std::string_view(args[i]).substr(0, args[i].find('='));
  const auto found = std::find_if(kDropped.begin(), kDropped.end(),
                                  [&](const Dropped& d) { return d.flag == flag; });
  if (found == kDropped.end()) return std::nullopt;
  std::fprintf(stderr, "note: %s has no effect: %s\n", std::string(flag).c_str(),
               std::string(found->note).c_str());
  if (flag.size() < args[i].size() || i + 1 == args.size()) return 1;
  if (found->value == Value::one) return 2;
  return found->value == Value::on_off && is_on_off(args[i + 1]) ? 2 : 1;
}

// Our spelling of args[i], and of its value when that stands in the next argument and has a unit.
void append_renamed(const std::vector<std::string>& args,
                    std::size_t& i,
                    std::vector<std::string>& out) {
  const std::string& argument = args[i];
  const std::size_t end = std::min(argument.find('='), argument.size());
  const auto found = std::find_if(kRenames.begin(), kRenames.end(), [&](const Rename& rename) {
    return std::string_view(argument).substr(0, end) == rename.from;
  });
  if (found == kRenames.end()) return out.push_back(argument);
  const bool has_value = end < argument.size();
  out.push_back(std::string(found->to) + argument.substr(end) +
                (has_value ? std::string(found->unit) : ""));
  if (has_value || found->unit.empty() || i + 1 == args.size()) return;
  out.push_back(args[++i] + std::string(found->unit));
}

}  // namespace

std::vector<std::string> normalized_arguments(int argc,
                                              const char* const* argv,
                                              const std::vector<std::string>& verbs) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (const auto n_dropped = dropped_at(args, i)) {
      i += *n_dropped - 1;
      continue;
    }
    append_renamed(args, i, out);
  }
  constexpr std::array<std::string_view, 5> kOwnFlags{"--help", "-h", "--version", "--help-all",
                                                      "help"};
  const bool names_verb =
      out.empty() || std::find(verbs.begin(), verbs.end(), out.front()) != verbs.end() ||
      std::find(kOwnFlags.begin(), kOwnFlags.end(), out.front()) != kOwnFlags.end();
  if (!names_verb) out.insert(out.begin(), "serve");
  return out;
}

}  // namespace kvasir::app
