// kvasir serve: the HTTP server over one model.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <sstream>
#include <thread>

#include "app/cli/common_flags.h"
#include "app/cli/hub_support.h"
#include "app/cli/shutdown.h"
#include "app/cli/terminal.h"
#include "app/cli/verbs.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "hub/downloads.h"
#include "hub/library.h"
#include "hub/use_mark.h"
#include "kvasir/fit_model.h"
#include "kvasir/kvasir.h"
#include "server/server.h"

namespace kvasir::app {
namespace {

constexpr std::uint64_t kMaxKeyFileBytes = 1 << 20;

struct Flags {
  OpenFlags open;
  SamplingFlags sampling;
  server::ServeOptions serve;
  std::string key_file, template_args, thinking, config, logprobs_format = "openai";
  std::uint32_t max_tokens = 0;
  std::int64_t reasoning_budget = -1;
  double queue_timeout_s = 0, request_timeout_s = 0, consumer_timeout_s = 60,
         shutdown_timeout_s = 120;
  double max_body_mib = 32;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

Status read_keys(const Flags& flags, server::ServeOptions& out) {
  if (flags.key_file.empty()) return {};
  KVASIR_TRY(const std::string text, read_file(flags.key_file, kMaxKeyFileBytes));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line.front() != '#') out.api_keys.push_back(line);
  }
  if (out.api_keys.empty()) return invalid("--api-key-file " + flags.key_file + " holds no key");
  return {};
}

Result<server::ServeOptions> resolve_serve(const Flags& flags) {
  server::ServeOptions out = flags.serve;
  KVASIR_TRY_DO(read_keys(flags, out));
  if (out.tls_cert.empty() != out.tls_key.empty())
    return invalid("--tls-cert and --tls-key go together");
  if (!(flags.max_body_mib > 0 && flags.max_body_mib <= 4096))
    return invalid("--max-body must be above 0 and at most 4096 MiB");
  out.max_body_bytes = static_cast<std::uint64_t>(flags.max_body_mib * 0x1p20);
  out.mlx_logprobs = flags.logprobs_format == "mlx";
  out.request_timeout = milliseconds(flags.request_timeout_s);
  out.consumer_timeout = milliseconds(flags.consumer_timeout_s);
  if (flags.reasoning_budget >= 0)
    out.reasoning_budget = static_cast<std::uint32_t>(flags.reasoning_budget);
  if (!flags.template_args.empty()) {
    KVASIR_TRY(const json::Value args, json::parse(flags.template_args));
    if (!args.is_object()) return invalid("--chat-template-args must be a JSON object");
    out.template_variables = *args.as_object();
  }
  if (!flags.thinking.empty()) out.template_variables["enable_thinking"] = flags.thinking == "on";
  return out;
}

// This machine's rates, measured at the first start and kept in the registry (FIT-16).
fit::MachineSpeed machine_of(const OpenOptions& options, hub::Library* library) {
  if (chosen_backend(options.backend) != Backend::cpu) return {};
  const int n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {};
  const std::string name =
      std::string(host.data()) + "/" + options.isa + "/" + std::to_string(n_threads);
  if (library) {
    if (const auto known = library->machine_rates(name); known && *known)
      return {(*known)->bytes_per_second, (*known)->flops_per_second, {}};
  }
  const fit::MachineSpeed measured = measure_machine(n_threads);
  if (!library) return measured;
  const Status kept =
      library->record_machine_rates(name, {measured.bytes_per_second, measured.flops_per_second});
  if (!kept) log::warning(kept.error().what);
  return measured;
}

// SRV-94.
void print_start(const Engine& engine, const server::Server& server) {
  const ModelSummary& model = engine.summary();
  const engine::EngineSnapshot now = engine.snapshot();
  std::fprintf(stderr, "%s\n", engine.startup_line().c_str());
  std::fprintf(stderr, "backend %s · KV %s, %s · %u rows, queue of %u · prefix cache %s\n",
               model.backend.c_str(), model.kv_type.c_str(), size_text(now.kv_total_bytes).c_str(),
               now.max_rows, now.queue_limit, now.cache.max_bytes > 0 ? "in RAM" : "off");
  if (model.embedding_width > 0)
    std::fprintf(stderr, "vectors of %u: /v1/embeddings answers\n", model.embedding_width);
  else if (!model.has_chat_template())
    std::fprintf(stderr, "no chat template: only /v1/completions answers\n");
  std::fprintf(stderr, "listening on %s%s · Ctrl-C stops\n", server.url().c_str(),
               model.embedding_width > 0 ? "" : " · open it in a browser to chat");
}

void look_for_models(hub::Library& library) {
  const auto scanned = library.refresh();
  if (!scanned) log::warning("models on disk: " + scanned.error().what);
}

int run(const Flags& flags) {
  ShutdownSignals signals;  // before any thread starts
  auto options = resolve(flags.open);
  if (!options) return report_usage(options.error());
  options->queue_timeout = milliseconds(flags.queue_timeout_s);
  json::Object defaults = as_request_fields(flags.sampling);
  if (flags.max_tokens > 0) defaults["max_tokens"] = flags.max_tokens;
  options->sampling_flags = std::move(defaults);
  const auto serve = resolve_serve(flags);
  if (!serve) return report_usage(serve.error());

  const auto hub_places = hub_options();
  std::unique_ptr<hub::Library> library;
  std::unique_ptr<hub::Downloads> downloads;
  if (hub_places) {
    if (auto opened = hub::Library::open(*hub_places)) library = *std::move(opened);
    hub::Library* known = library.get();
    downloads = std::make_unique<hub::Downloads>(*hub_places, [known](const hub::Download&) {
      if (known) look_for_models(*known);
    });
  }
  std::jthread scan;  // reads headers only; /library shows the last picture meanwhile
  if (library) scan = std::jthread([&library] { look_for_models(*library); });
  const auto mark = hub::UseMark::take(options->model);
  if (!mark) return report(mark.error());
  auto server = server::Server::start(*serve, library.get(), downloads.get());
  if (!server) return report(server.error());
  options->machine = machine_of(*options, library.get());
  options->progress = make_progress_bar();
  auto engine = Engine::open(*options);
  if (!engine) return report(engine.error());
  (*server)->on_shutdown_request([&signals] { signals.request(); });
  (*server)->serve(**engine);
  print_start(**engine, **server);

  signals.wait();
  std::fprintf(stderr, "shutting down: finishing what runs (again to stop at once)\n");
  (*server)->shutdown(milliseconds(flags.shutdown_timeout_s));
  return 0;
}

void add_transport_flags(CLI::App& verb, Flags& flags) {
  server::ServeOptions& s = flags.serve;
  verb.add_option("--host", s.host, "Address to listen on")->capture_default_str();
  verb.add_option("--port", s.port, "Port; 0: any free one")->capture_default_str();
  verb.add_option("--unix", s.unix_path, "Listen on this unix socket instead");
  verb.add_option("--tls-cert", s.tls_cert, "PEM certificate chain: serve HTTPS");
  verb.add_option("--tls-key", s.tls_key, "PEM key of it");
  const auto not_empty = [](const std::string& key) {
    return key.empty() ? "must not be empty" : "";
  };
  verb.add_option("--api-key", s.api_keys, "Key that requests must carry; may be given again")
      ->check(CLI::Validator(not_empty, "KEY"));
  verb.add_option("--api-key-file", flags.key_file, "File with a key a line");
  verb.add_option("--admin-key", s.admin_key, "Key for /admin; default: loopback only")
      ->check(CLI::Validator(not_empty, "KEY"));
  verb.add_option("--allowed-origins", s.allowed_origins,
                  "Web origins that may call; * for any (default: loopback)")
      ->delimiter(',');
  verb.add_option("--max-body", flags.max_body_mib, "Largest request body in MiB")
      ->capture_default_str();
}

void add_service_flags(CLI::App& verb, Flags& flags) {
  server::ServeOptions& s = flags.serve;
  OpenOptions& o = flags.open.options;
  verb.add_option("--model-id", s.model_id, "Name of the model in answers; default: its file name");
  verb.add_option("--alias", s.aliases, "Another name of it; may be given again");
  verb.add_flag("--strict-model", s.strict_model, "Requests for other models get 404");
  verb.add_option("--queue", o.queue_limit, "Requests that may wait; more get 429")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  verb.add_option("--max-rows-per-key", s.max_rows_per_key,
                  "Rows that one API key may have at once, waiting ones too; more get 429; 0: any")
      ->capture_default_str();
  const auto seconds = [&](const char* name, double& value, const char* help) {
    const auto is_finite = [](const std::string& text) {
      return text.find_first_of("nN") == std::string::npos ? "" : "must be a number of seconds";
    };
    verb.add_option(name, value, help)
        ->check(CLI::Validator(is_finite, "SECONDS"))
        ->check(CLI::Range(0.0, 86400.0))
        ->capture_default_str();
  };
  seconds("--queue-timeout", flags.queue_timeout_s, "Seconds a request may wait; 0: any");
  seconds("--request-timeout", flags.request_timeout_s, "Seconds a request may take; 0: any");
  seconds("--consumer-timeout", flags.consumer_timeout_s,
          "Seconds a client may read nothing before its request is cancelled");
  seconds("--shutdown-timeout", flags.shutdown_timeout_s,
          "Seconds that running requests get after SIGTERM");
  verb.add_option("--max-tokens,-n,--n-predict", flags.max_tokens,
                  "Most tokens of an answer when the request does not say");
  verb.add_option("--reasoning-format", s.reasoning_field,
                  "Field of the reasoning: reasoning, reasoning_content, or none (in the content)")
      ->check(CLI::IsMember({"reasoning", "reasoning_content", "none"}))
      ->capture_default_str();
  verb.add_option("--reasoning-budget", flags.reasoning_budget,
                  "Reasoning tokens after which the model must answer; -1: any number")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  verb.add_option("--thinking", flags.thinking, "Models that can: think or not")
      ->check(CLI::IsMember({"on", "off"}));
  verb.add_option("--logprobs-format", flags.logprobs_format,
                  "Shape of log-probabilities: openai, or mlx (in answers that do not stream)")
      ->check(CLI::IsMember({"openai", "mlx"}))
      ->capture_default_str();
  verb.add_option("--chat-template-args", flags.template_args, "JSON object of template variables");
  verb.add_flag("--stream-tool-arguments", s.streams_tool_arguments,
                "Streams of /v1/chat/completions: a tool call as its name, then pieces of its "
                "arguments, instead of one chunk");
  verb.add_flag("--log-prompts", s.logs_prompts, "Log request bodies");
  verb.add_option("--config", flags.config, "TOML or INI file with values for these flags");
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();  // shared with the parsed command's action
  CLI::App* verb =
      app.add_subcommand("serve", "Serve a model over HTTP, with a web chat (default)");
  add_open_flags(*verb, flags->open);
  add_transport_flags(*verb, *flags);
  add_service_flags(*verb, *flags);
  add_sampling_flags(*verb, flags->sampling);
  verb->footer(
      "Every flag also reads KVASIR_ and its name, as KVASIR_PORT.\n"
      "Examples:\n  kvasir serve model.gguf\n"
      "  kvasir ./Qwen3-0.6B --port 8081 --batch 16 --api-key-file keys.txt --host 0.0.0.0");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::app
