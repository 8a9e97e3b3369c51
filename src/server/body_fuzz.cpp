// Bodies of every route that takes one, without a connection or a running generation: parsing,
// validation, templates, tokens. The first byte picks the route.
#include <array>
#include <cstdint>
#include <string>
#include <variant>

#include "base/log.h"
#include "server/endpoints/endpoint.h"
#include "server/endpoints/testing/tiny_engine.h"

namespace kvasir::server {
namespace {

constexpr std::array<std::variant<PlanFn, ReplyFn>, 11> kTakers{
    plan_chat_completion, plan_completion,      plan_message, plan_response,
    plan_ollama_chat,     plan_ollama_generate, tokenize,     detokenize,
    apply_template,       count_message_tokens, ollama_show};

void take(ServerState& state, std::size_t route, std::string body) {
  HttpRequest request = post_of(body);
  if (const auto* reply = std::get_if<ReplyFn>(&kTakers[route])) {
    (*reply)(state, request, "");
    return;
  }
  const auto parsed_body = parse_body(request);
  const auto* value = std::get_if<json::Value>(&parsed_body);
  if (!value) return;
  PlanOrError plan = std::get<PlanFn>(kTakers[route])(state, *value);
  const auto* made = std::get_if<Plan>(&plan);
  // The prompt is rendered before a request is queued.
  if (made && !made->requests.front().messages.empty())
    (void)state.engine.load()->render(made->requests.front());
}

}  // namespace
}  // namespace kvasir::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir::server;
  static auto* const tiny = [] {
    kvasir::log::set_level(kvasir::log::Level::off);
    return new TinyState;  // lives as long as the engine's threads
  }();
  if (size == 0) return 0;
  take(tiny->state, data[0] % kTakers.size(),
       std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
