// The command line as a table: each alias parses to the same options as ours (SRV-92), the flags of
// SRV-93 are there, and what stays without effect says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "app/cli/aliases.h"
#include "app/cli/common_flags.h"
#include "app/cli/config_file.h"
#include "app/cli/nearest.h"
#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

using testing::HasSubstr;

using Options = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// The program's verbs, parsing and no more.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    for (const auto add : kVerbs) add(app_, action_);
    for (const CLI::App* verb : app_.get_subcommands({})) {
      verbs_.push_back(verb->get_name());
      for (const std::string& alias : verb->get_aliases()) verbs_.push_back(alias);
    }
  }

  // What was given, by the name that `--help` shows first; the verb under "".
  Options parse(const std::string& line) {
    std::vector<std::string> typed = words(line);
    typed.insert(typed.begin(), "kvasir");
    std::vector<const char*> argv;
    for (const std::string& word : typed) argv.push_back(word.c_str());
    std::vector<std::string> args =
        normalized_arguments(static_cast<int>(argv.size()), argv.data(), verbs_);
    std::reverse(args.begin(), args.end());
    app_.parse(std::move(args));
    const CLI::App* verb = app_.get_subcommands().front();
    Options out{{"", {verb->get_name()}}};
    for (const CLI::Option* option : verb->get_options()) {
      if (option->count() > 0) out[option->get_name()] = option->results();
    }
    return out;
  }

  const CLI::App& app() const { return app_; }

 private:
  CLI::App app_;
  Action action_;
  std::vector<std::string> verbs_;
};

Options parsed(const std::string& line) { return CommandLine().parse(line); }

struct Alias {
  const char* theirs;
  const char* ours;
};

class EveryAlias : public testing::TestWithParam<Alias> {};

TEST_P(EveryAlias, ParsesToTheSameOptions_SRV_92) {
  EXPECT_EQ(parsed(GetParam().theirs), parsed(GetParam().ours));
}

INSTANTIATE_TEST_SUITE_P(
    OfServe,
    EveryAlias,
    testing::Values(Alias{"m.gguf", "serve --model m.gguf"},
                    Alias{"-m m", "serve m"},
                    Alias{"-hf org/m", "serve org/m"},
                    Alias{"m -np 4", "serve m --batch 4"},
                    Alias{"m --parallel 4", "serve m --batch 4"},
                    Alias{"m --parallel=4", "serve m --batch 4"},
                    Alias{"m --decode-concurrency 4", "serve m --batch 4"},
                    Alias{"m --prompt-concurrency 4", "serve m"},
                    Alias{"m -cb", "serve m"},
                    Alias{"m --cont-batching", "serve m"},
                    Alias{"m -b 256", "serve m --max-step-tokens 256"},
                    Alias{"m --batch-size 256", "serve m --max-step-tokens 256"},
                    Alias{"m --prefill-step-size 256", "serve m --max-step-tokens 256"},
                    Alias{"m -c 4096", "serve m --context-length 4096"},
                    Alias{"m --ctx-size 4096", "serve m --context-length 4096"},
                    Alias{"m --ctx 4096", "serve m --context-length 4096"},
                    Alias{"m -dev CUDA0,CUDA1", "serve m --device 0,1"},
                    Alias{"m --kv-bits 8", "serve m --kv-quant 8"},
                    Alias{"m -ctk q8_0 -ctv q8_0",
                          "serve m --cache-type-k q8_0 --cache-type-v q8_0"},
                    Alias{"m --paged-kv", "serve m"},
                    Alias{"m --paged-kv-block-size 32", "serve m --kv-block-size 32"},
                    Alias{"m --temp 0.5", "serve m --temperature 0.5"},
                    Alias{"m -n 9", "serve m --max-tokens 9"},
                    Alias{"m --predict 9", "serve m --max-tokens 9"},
                    Alias{"m --n-predict 9", "serve m --max-tokens 9"},
                    Alias{"m --repeat-penalty 1.1", "serve m --repetition-penalty 1.1"},
                    Alias{"m --chat-template-file f", "serve m --chat-template f"},
                    Alias{"m --chat-template-kwargs {}", "serve m --chat-template-args {}"},
                    Alias{"m --jinja", "serve m"},
                    Alias{"m --cors-origins *", "serve m --allowed-origins *"},
                    Alias{"m --cache-ram 512", "serve m --prompt-cache 512MiB"},
                    Alias{"m --cache-ram=512", "serve m --prompt-cache 512MiB"},
                    Alias{"m --prompt-cache-bytes 512", "serve m --prompt-cache 512B"},
                    Alias{"m --metrics", "serve m"},
                    Alias{"m -t 3", "serve m --threads 3"},
                    Alias{"m -ngl 99", "serve m"},
                    Alias{"m --n-gpu-layers 99", "serve m"},
                    Alias{"m -fa", "serve m"},
                    Alias{"m -fa on --port 1", "serve m --port 1"},
                    Alias{"m --flash-attn --port 1", "serve m --port 1"},
                    Alias{"m --mmap", "serve m"},
                    Alias{"m --no-mmap", "serve m"},
                    Alias{"m --in-process", "serve m"},
                    Alias{"m --trust-remote-code", "serve m"}));

INSTANTIATE_TEST_SUITE_P(
    OfGenerate,
    EveryAlias,
    testing::Values(Alias{"gen m -p hi -n 5", "generate --model m --prompt hi --max-tokens 5"},
                    Alias{"generate m -p hi --kv-bits 4 --kv-group-size 32",
                          "generate m --prompt hi --kv-quant 4 --kv-group-size 32"}));

TEST(Flags, ThoseOfSrv92And93AreThereAndHaveHelp) {
  CommandLine line;
  const CLI::App& serve = *line.app().get_subcommand("serve");
  for (const char* flag : {"--model",
                           "--host",
                           "--port",
                           "--unix",
                           "--batch",
                           "--max-step-tokens",
                           "--context-length",
                           "--kv-quant",
                           "--quantized-kv-start",
                           "--kv-group-size",
                           "--kv-dtype",
                           "--kv-block-size",
                           "--temperature",
                           "--top-p",
                           "--top-k",
                           "--min-p",
                           "--max-tokens",
                           "--chat-template",
                           "--use-default-chat-template",
                           "--chat-template-args",
                           "--allowed-origins",
                           "--prompt-cache",
                           "--prompt-cache-size",
                           "--api-key",
                           "--api-key-file",
                           "--backend",
                           "--isa",
                           "--device",
                           "--activations",
                           "--threads",
                           "--reasoning-format",
                           "--reasoning-budget",
                           "--thinking",
                           "--memory-budget",
                           "--kv-budget",
                           "--queue",
                           "--queue-timeout",
                           "--request-timeout",
                           "--shutdown-timeout",
                           "--consumer-timeout",
                           "--prefill-share",
                           "--max-rows-per-key",
                           "--max-body",
                           "--strict-model",
                           "--admin-key",
                           "--log-prompts",
                           "--cache-policy",
                           "--stream-tool-arguments",
                           "--logprobs-format",
                           "--config",
                           "--tool-parser",
                           "--alias",
                           "--hlg",
                           "--hlg-width",
                           "--hlg-shoulder",
                           "--hlg-toe",
                           "--hlg-pivot",
                           "--hlg-pivot-offset",
                           "--hlg-gain",
                           "--tls-cert",
                           "--tls-key"}) {
    const CLI::Option* option = serve.get_option_no_throw(flag);
    ASSERT_NE(option, nullptr) << flag;
    EXPECT_FALSE(option->get_description().empty()) << flag;
  }
}

TEST(Flags, WhatHasNoEffectSaysSo_SRV_92_93) {
  for (const char* flag : {"-ngl 99", "-fa on", "-cb", "--mmap", "--jinja", "--metrics",
                           "--prompt-concurrency 2", "--trust-remote-code"}) {
    testing::internal::CaptureStderr();
    parsed(std::string("m ") + flag);
    const std::string note = testing::internal::GetCapturedStderr();
    EXPECT_THAT(note, HasSubstr("note: " + words(flag).front() + " has no effect: ")) << flag;
  }
  testing::internal::CaptureStderr();
  parsed("m --trust-remote-code");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("kvasir never runs model code"));
}

TEST(Flags, AnUnknownOneIsAnErrorWithTheNearestName_SRV_91) {
  CommandLine line;
  EXPECT_THROW(line.parse("m --bach 4"), CLI::ParseError);
  EXPECT_EQ(nearest_name(line.app(), "--bach"), "--batch");
}

OpenFlags of_cache_types(const char* keys, const char* values) {
  OpenFlags flags;
  flags.options.model = KVASIR_TEST_DATA "/models/llama";
  flags.cache_type_k = keys;
  flags.cache_type_v = values;
  return flags;
}

TEST(Flags, CacheTypesOfLlamaServerAreSchemes_SRV_92) {
  EXPECT_EQ(resolve(of_cache_types("q8_0", "q8_0"))->kv_quant, "8");
  EXPECT_EQ(resolve(of_cache_types("q4_0", "q4_0"))->kv_quant, "4");
  EXPECT_EQ(resolve(of_cache_types("f16", "f16"))->kv_type, DType::f16);
  EXPECT_EQ(resolve(of_cache_types("bf16", "bf16"))->kv_type, DType::bf16);
  EXPECT_EQ(resolve(of_cache_types("f32", "f32"))->kv_type, DType::f32);
  EXPECT_EQ(resolve(of_cache_types("q8_0", "f16")).error().what,
            "--cache-type-k and --cache-type-v must be equal");
}

TEST(Flags, ACacheTypeContradictsNoOtherScheme) {
  OpenFlags flags = of_cache_types("q8_0", "q8_0");
  flags.options.kv_quant = "turbo";
  EXPECT_EQ(resolve(flags).error().what,
            "--cache-type-k q8_0 means --kv-quant 8, but --kv-quant turbo was given");
  flags.options.kv_quant = "8";
  EXPECT_EQ(resolve(flags)->kv_quant, "8");
}

TEST(Flags, UnitsOfMemoryAreTheirs_SRV_92) {
  OpenFlags flags;
  flags.options.model = KVASIR_TEST_DATA "/models/llama";
  const auto prompt_cache = [&](const char* text) {
    flags.prompt_cache = text;
    return resolve(flags)->prompt_cache_bytes;
  };
  EXPECT_EQ(prompt_cache("2"), 2ull << 30);         // GiB
  EXPECT_EQ(prompt_cache("512MiB"), 512ull << 20);  // --cache-ram 512
  EXPECT_EQ(prompt_cache("512B"), 512ull);          // --prompt-cache-bytes 512
}

// What the server takes as a request's field (SAMP-13, 40).
json::Object fields_of(const std::string& line) {
  CLI::App verb;
  SamplingFlags flags;
  add_sampling_flags(verb, flags);
  std::vector<std::string> args = words(line);
  std::reverse(args.begin(), args.end());
  verb.parse(std::move(args));
  return as_request_fields(flags);
}

TEST(Flags, OfTheHlgCurveAreTheRequestsField_SAMP_13) {
  EXPECT_EQ(json::write(fields_of("--temp 0")), R"({"temperature":0.0})");
  EXPECT_EQ(json::write(fields_of("--hlg --hlg-width 2 --hlg-pivot median")),
            R"({"hlg":{"enabled":true,"width":2.0,"pivot":"median"}})");
  EXPECT_EQ(json::write(fields_of("--hlg-gain 1.5")), R"({"hlg":{"gain":1.5}})");
}

}  // namespace
}  // namespace kvasir::app
