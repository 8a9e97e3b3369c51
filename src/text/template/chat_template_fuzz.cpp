// Template source and JSON variables, separated by a zero byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "json/json.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(input.find('\0'), size);
  const auto chat_template =
      kvasir::text::ChatTemplate::compile(std::string(input.substr(0, zero)));
  if (!chat_template) return 0;
  const auto variables = kvasir::json::parse(input.substr(std::min(zero + 1, size)));
  const kvasir::json::Object none;
  const auto* given = variables ? variables->as_object() : nullptr;
  (void)chat_template->render(given != nullptr ? *given : none);
  return 0;
}
