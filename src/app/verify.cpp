#include "kvasir/verify.h"

#include <cstdio>

#include "app/cli/common_flags.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"
#include "backend/cpu/isa.h"
#include "text/verify_templates.h"
#include "text/verify_tokenizers.h"

namespace kvasir::app {
namespace {

void print_line(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

int finish(const Result<verify::Summary>& summary) {
  if (!summary) return report(summary.error());
  std::puts(summary->text.c_str());
  return summary->n_failed == 0 && summary->n_checked > 0 ? 0 : kExitFailure;
}

struct GoldenFlags {
  verify::GoldenOptions options;
  std::string backend = "ref";
};

void add_goldens(CLI::App& verify_verb, Action& action) {
  auto flags = std::make_shared<GoldenFlags>();  // shared with the parsed command's action
  CLI::App* verb = verify_verb.add_subcommand(
      "goldens", "Logits and greedy tokens against reference checkpoints");
  verb->add_option("dir", flags->options.folder, "Folder with one sub-folder a checkpoint")
      ->required();
  verb->add_option("--only", flags->options.only, "Names, comma separated")->delimiter(',');
  verb->add_option("--backend", flags->backend,
                   "ref, cpu or cuda (these two are compared with ref's mirrors)")
      ->capture_default_str();
  verb->add_option("--device", flags->options.gpus, "GPUs of the cuda backend")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--isa", flags->options.isa,
                   "Kernels of the cpu backend: " + backend::cpu::isa_names())
      ->capture_default_str();
  verb->add_option("--activations", flags->options.activations, "Of the cpu backend: exact or int8")
      ->check(CLI::IsMember({"exact", "int8"}))
      ->capture_default_str();
  verb->add_option("-t,--threads", flags->options.n_threads,
                   "Threads of the cpu backend; 0: every core");
  verb->footer("Example:\n  kvasir verify goldens goldens/ --only llama,qwen3 --backend cpu");
  verb->callback([flags, &action] {
    action = [flags] {
      auto backend = parse_backend(flags->backend);
      if (!backend) return report(backend.error());
      flags->options.backend = *backend;
      return finish(verify::goldens(flags->options, print_line));
    };
  });
}

struct TextFlags {
  std::string data, cases;
};

template <class Verify>
void add_text_check(CLI::App& verify_verb,
                    Action& action,
                    const char* name,
                    const char* help,
                    const char* cases,
                    Verify check) {
  auto flags = std::make_shared<TextFlags>();  // shared with the parsed command's action
  CLI::App* verb = verify_verb.add_subcommand(name, help);
  verb->add_option("data", flags->data, "Folder of what is checked")->required();
  verb->add_option("cases", flags->cases, cases)->required();
  verb->callback([flags, &action, check] { action = [flags, check] { return check(*flags); }; });
}

int check_tokenizers(const TextFlags& flags) {
  const auto summary = text::verify_tokenizers(
      flags.data, flags.cases, [](std::string_view line) { print_line(std::string(line)); });
  if (!summary) return report(summary.error());
  std::printf("%zu cases, %zu differ\n", summary->n_cases, summary->n_differ);
  return summary->n_differ == 0 && summary->n_cases > 0 ? 0 : kExitFailure;
}

int check_templates(const TextFlags& flags) {
  const auto summary =
      text::verify_templates(flags.data, flags.cases, [](const text::VerifyDifference& d) {
        print_line("DIFFER " + d.template_name + " / " + d.conversation + ": " + d.what);
      });
  if (!summary) return report(summary.error());
  std::printf(
      "%zu templates: %zu of %zu renderings equal, %zu of %zu error cases are errors, %zu of %zu "
      "raised messages carried\n",
      summary->n_templates, summary->n_equal, summary->n_texts, summary->n_failed,
      summary->n_errors, summary->n_carried, summary->n_raised);
  return summary->all_good() && summary->n_texts > 0 ? 0 : kExitFailure;
}

// What the verb does once its flags are read: the check, on the model that they name.
template <class Flags, class Check>
void run_on_model(CLI::App& verb, Action& action, std::shared_ptr<Flags> flags, Check check) {
  verb.callback([flags, check, &action] {
    action = [flags, check] {
      auto open = resolve(flags->open);
      if (!open) return report(open.error());
      flags->options.open = *open;
      flags->options.open.progress = make_progress_bar();
      return finish(check(flags->options, print_line));
    };
  });
}

struct SameBitsFlags {
  OpenFlags open;
  verify::SameBitsOptions options;
};

void add_same_bits(CLI::App& verify_verb, Action& action) {
  auto flags = std::make_shared<SameBitsFlags>();  // shared with the parsed command's action
  CLI::App* verb = verify_verb.add_subcommand(
      "same-bits", "Tokens and logprobs equal bit for bit, whatever happens around a request");
  add_open_flags(*verb, flags->open);
  verb->add_option("-n,--max-tokens", flags->options.n_generate, "Tokens generated a prompt")
      ->capture_default_str()
      ->check(CLI::Range(2, 4096));
  verb->footer("Example:\n  kvasir verify same-bits model.gguf");
  run_on_model(*verb, action, flags, verify::same_bits);
}

struct KvQualityFlags {
  OpenFlags open;
  verify::KvQualityOptions options;
};

void add_kv_quality(CLI::App& verify_verb, Action& action) {
  auto flags = std::make_shared<KvQualityFlags>();  // shared with the parsed command's action
  flags->options.schemes = {"bf16",       "f16",   "8",          "4",
                            "turbo:k8v8", "turbo", "turbo:k4v4", "turbo:k2v2"};
  CLI::App* verb = verify_verb.add_subcommand(
      "kv-quality", "KL divergence and top-token agreement of KV schemes with f32 KV");
  add_open_flags(*verb, flags->open);
  verb->add_option("--text", flags->options.texts, "Text files, fed one after another")
      ->required()
      ->check(CLI::ExistingFile);
  verb->add_option("--schemes", flags->options.schemes, "bf16, f16, or as --kv-quant")
      ->delimiter(',');
  verb->add_option("-n,--tokens", flags->options.n_tokens, "Tokens at most")->capture_default_str();
  verb->footer("Example:\n  kvasir verify kv-quality model.gguf --text README.md docs/numerics.md");
  run_on_model(*verb, action, flags, verify::kv_quality);
}

struct ActivationQualityFlags {
  OpenFlags open;
  verify::ActivationQualityOptions options;
};

void add_activation_quality(CLI::App& verify_verb, Action& action) {
  auto flags =
      std::make_shared<ActivationQualityFlags>();  // shared with the parsed command's action
  CLI::App* verb = verify_verb.add_subcommand(
      "activation-quality",
      "KL divergence and top-token agreement of --activations exact and int8 with f32");
  add_open_flags(*verb, flags->open);
  verb->add_option("--text", flags->options.texts, "Text files, fed one after another")
      ->required()
      ->check(CLI::ExistingFile);
  verb->add_option("--logits", flags->options.logits,
                   "NAME=FILE: another engine's logits of the same tokens, f32");
  verb->add_option("-n,--tokens", flags->options.n_tokens, "Tokens at most")->capture_default_str();
  verb->footer("Example:\n  kvasir verify activation-quality model.gguf --text README.md");
  run_on_model(*verb, action, flags, verify::activation_quality);
}

struct KvMemoryFlags {
  OpenFlags open;
  verify::KvMemoryOptions options;
};

void add_kv_memory(CLI::App& verify_verb, Action& action) {
  auto flags = std::make_shared<KvMemoryFlags>();  // shared with the parsed command's action
  flags->options.schemes = {"off", "8", "4", "turbo", "turbo:k4v4", "turbo:k2v2"};
  CLI::App* verb = verify_verb.add_subcommand(
      "kv-memory",
      "Bytes of a token under each KV scheme: predicted, in planes, as the process grows");
  add_open_flags(*verb, flags->open);
  verb->add_option("--schemes", flags->options.schemes, "As --kv-quant")->delimiter(',');
  verb->add_option("-n,--tokens", flags->options.n_tokens, "Tokens over which growth is taken")
      ->capture_default_str()
      ->check(CLI::Range(1024, 1 << 20));
  verb->footer("Example:\n  kvasir verify kv-memory model.gguf");
  run_on_model(*verb, action, flags, verify::kv_memory);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "verify", "Check this build and this machine; exit code 0 only if all is equal");
  verb->require_subcommand(1);
  add_goldens(*verb, action);
  add_text_check(*verb, action, "tokenizers", "Token ids and decoded text against reference cases",
                 "Folder of NAME.json(.xz)", check_tokenizers);
  add_text_check(*verb, action, "templates",
                 "Chat template renderings against reference renderings",
                 "JSON file (.json or .json.xz)", check_templates);
  add_same_bits(*verb, action);
  add_kv_quality(*verb, action);
  add_activation_quality(*verb, action);
  add_kv_memory(*verb, action);
}

}  // namespace kvasir::app
