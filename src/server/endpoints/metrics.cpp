#include "server/endpoints/metrics.h"

#include <cstdio>
#include <functional>

#include "server/detail/version.h"

namespace kvasir::server {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

class Exposition {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = "kvasir_" + std::string(name);
    out_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " +
            std::string(type) + "\n";
  }
  void sample(std::string_view labels, double value, std::string_view suffix = "") {
    out_ += name_ + std::string(suffix);
    if (!labels.empty()) out_ += "{" + std::string(labels) + "}";
    out_ += " " + number(value) + "\n";
  }
  void histogram(const Histogram& h, const std::string& label = {}) {
    const std::string before = label.empty() ? "" : label + ",";
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
      n += h.counts[i];
      const std::string bound =
          i < Histogram::kBounds.size() ? number(Histogram::kBounds[i]) : "+Inf";
      sample(before + "le=\"" + bound + "\"", static_cast<double>(n), "_bucket");
    }
    sample(label, h.sum, "_sum");
    sample(label, static_cast<double>(h.n), "_count");
  }
  std::string take() { return std::move(out_); }

 private:
  std::string name_, out_;
};

// bandwidth: of this machine, measured, bytes per second; 0: not known.
void append_engine(Exposition& out, const engine::EngineSnapshot& now, double bandwidth) {
  out.family("rows", "gauge", "Requests by state.");
  out.sample("state=\"queued\"", now.queued);
  out.sample("state=\"preparing\"", now.preparing);
  out.sample("state=\"active\"", now.active);
  out.family("held", "gauge", "1 while admission is held.");
  out.sample("", now.is_held ? 1 : 0);
  out.family("step_seconds", "histogram", "Duration of engine steps.");
  out.histogram(now.decode_steps, "kind=\"decode\"");
  out.histogram(now.prefill_steps, "kind=\"prefill\"");
  out.family("step_tokens_total", "counter", "Tokens fed by steps.");
  out.sample("kind=\"decode\"", static_cast<double>(now.decode_tokens));
  out.sample("kind=\"prefill\"", static_cast<double>(now.prefill_tokens));
  out.sample("kind=\"draft\"", static_cast<double>(now.draft_tokens));
  out.family("deferrals_total", "counter", "Prefill spans put off for want of blocks.");
  out.sample("", static_cast<double>(now.deferrals));
  out.family("step_bytes_total", "counter", "Bytes of weights and KV state that steps read.");
  out.sample("", static_cast<double>(now.step_bytes));
  if (bandwidth > 0) {
    out.family("bandwidth_fraction", "gauge",
               "Decode steps' reads as a share of the measured memory bandwidth, a running mean.");
    out.sample("", now.decode_bytes_per_second / bandwidth);
  }
  out.family("kv_blocks", "gauge", "KV blocks by owner.");
  out.sample("state=\"free\"", static_cast<double>(now.kv_free_blocks));
  out.sample("state=\"row\"", static_cast<double>(now.kv_row_blocks));
  out.sample("state=\"cached\"", static_cast<double>(now.kv_cached_blocks));
  out.family("cache_hits_total", "counter", "Prompts whose prefix was found.");
  out.sample("tier=\"ram\"", static_cast<double>(now.cache.hits));
  out.family("cache_misses_total", "counter", "Prompts whose prefix was not found.");
  out.sample("tier=\"ram\"", static_cast<double>(now.cache.misses));
  out.family("cache_bytes", "gauge", "Bytes of cached prefixes.");
  out.sample("tier=\"ram\"", static_cast<double>(now.cache.bytes));
  out.family("spill_drops_total", "counter", "Prefixes that no slower tier took in time.");
  out.sample("", 0);  // there is no slower tier
}

}  // namespace

void Metrics::count_request(std::string_view endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{std::string(endpoint), status}];
}

void Metrics::add_outcome(const Outcome& outcome) {
  const Stats& stats = outcome.stats;
  const std::lock_guard lock(mutex_);
  ++totals_.requests;
  totals_.generated_tokens += stats.generated_tokens;
  totals_.draft_tokens += stats.draft_tokens;
  totals_.accepted_tokens += stats.draft_accepted;
  if (!stats.is_admitted) return;
  totals_.prompt_tokens += stats.prompt_tokens;
  totals_.cached_tokens += stats.cached_tokens;
  totals_.prefill_s += stats.prefill_ms / 1e3;
  totals_.decode_s += stats.decode_ms / 1e3;
  totals_.decode_tokens += stats.generated_tokens > 0 ? stats.generated_tokens - 1 : 0;
  queue_wait_.add(stats.queue_ms / 1e3);
  if (stats.generated_tokens == 0) return;
  first_token_.add((stats.queue_ms + stats.prefill_ms) / 1e3);
  if (stats.generated_tokens > 1)
    token_.add(stats.decode_ms / 1e3 / static_cast<double>(stats.generated_tokens - 1));
}

Metrics::Totals Metrics::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::string Metrics::text(const Engine* engine) const {
  Exposition out;
  out.family("build_info", "gauge", "Version and backend.");
  const std::string backend = engine ? engine->summary().backend : "none";
  out.sample("version=\"" + std::string(kVersion) + "\",backend=\"" + backend + "\"", 1);
  {
    const std::lock_guard lock(mutex_);
    out.family("requests_total", "counter", "HTTP requests by endpoint and status.");
    for (const auto& [key, n] : requests_)
      out.sample("endpoint=\"" + key.first + "\",status=\"" + std::to_string(key.second) + "\"",
                 static_cast<double>(n));
    out.family("tokens_total", "counter", "Tokens by kind.");
    out.sample("kind=\"prompt\"", static_cast<double>(totals_.prompt_tokens));
    out.sample("kind=\"cached\"", static_cast<double>(totals_.cached_tokens));
    out.sample("kind=\"generated\"", static_cast<double>(totals_.generated_tokens));
    out.sample("kind=\"draft\"", static_cast<double>(totals_.draft_tokens));
    out.sample("kind=\"accepted\"", static_cast<double>(totals_.accepted_tokens));
    out.family("queue_wait_seconds", "histogram", "From submission to admission.");
    out.histogram(queue_wait_);
    out.family("first_token_seconds", "histogram", "From submission to the first token.");
    out.histogram(first_token_);
    out.family("token_seconds", "histogram", "Mean time between a request's tokens.");
    out.histogram(token_);
  }
  if (engine) append_engine(out, engine->snapshot(), engine->machine().bytes_per_second);
  return out.take();
}

}  // namespace kvasir::server
