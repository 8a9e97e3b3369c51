#include "text/verify_templates.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/file.h"
#include "json/json.h"
#include "text/chat_template.h"

namespace kvasir::text {

namespace {

constexpr std::uint64_t kMaxCasesBytes = std::uint64_t{256} << 20;
constexpr std::string_view kRaised = "TemplateError: ";  // errors that a template raises itself

Result<CivilTime> parse_time(const std::string& text) {  // 2026-01-02T03:04:05
  CivilTime t;
  const int n = std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d", &t.year, &t.month, &t.day, &t.hour,
                            &t.minute, &t.second);
  if (n != 6) return invalid("cases: \"now\" is no time: " + text);
  return t;
}

std::string where_they_part(const std::string& got, const std::string& want) {
  const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
  const auto context = [](const std::string& text, std::string::const_iterator at) {
    const auto offset = static_cast<std::size_t>(at - text.begin());
    return json::write(json::Value(std::string_view(text).substr(offset, 40)));
  };
  return "differs at byte " + std::to_string(g - got.begin()) + ": got " + context(got, g) +
         ", want " + context(want, w);
}

class Verifier {
 public:
  Verifier(const json::Value& cases, const DifferenceSink& report)
      : cases_(cases), report_(report) {}

  Status prepare() {
    KVASIR_TRY(options_.now, parse_time(cases_.string_or("now", "")));
    const json::Value* conversations = cases_.find("conversations");
    if (conversations == nullptr || conversations->as_object() == nullptr) {
      return invalid("cases: no \"conversations\"");
    }
    conversations_ = conversations->as_object();
    if (const json::Value* defaults = cases_.find("defaults");
        defaults != nullptr && defaults->as_object()) {
      defaults_ = *defaults->as_object();
    }
    return {};
  }

  Status verify(const std::string& name, const std::string& source, const json::Object& renders) {
    ++summary_.n_templates;
    const auto compiled = ChatTemplate::compile(source, name);
    for (const auto& [conversation, expected] : renders) {
      if (!compiled) {
        compare(name, conversation, compiled.error(), expected);
        continue;
      }
      const json::Value* given = conversations_->find(conversation);
      if (given == nullptr || given->as_object() == nullptr) {
        return invalid("cases: no conversation \"" + conversation + "\"");
      }
      json::Object variables = defaults_;
      for (const auto& [key, value] : *given->as_object()) variables[key] = value;
      compare(name, conversation, compiled->render(variables, options_), expected);
    }
    return {};
  }

  const TemplateSummary& summary() const { return summary_; }

 private:
  void compare(const std::string& name,
               const std::string& conversation,
               const Result<Rendered>& got,
               const json::Value& expected) {
    const auto differ = [&](std::string what) {
      if (report_) report_({name, conversation, std::move(what)});
    };
    if (const json::Value* text = expected.find("text");
        text != nullptr && text->as_string() != nullptr) {
      ++summary_.n_texts;
      if (!got) return differ("failed: " + got.error().what);
      if (got->text != *text->as_string())
        return differ(where_they_part(got->text, *text->as_string()));
      ++summary_.n_equal;
      return;
    }
    const std::string error = expected.string_or("error", "");
    const bool is_raised = error.starts_with(kRaised);
    ++summary_.n_errors;
    summary_.n_raised += is_raised ? 1 : 0;
    if (got) return differ("rendered, but must fail with: " + error);
    ++summary_.n_failed;
    if (!is_raised) return;
    if (got.error().what.find(error.substr(kRaised.size())) == std::string::npos) {
      return differ("fails with \"" + got.error().what + "\", but must carry: " + error);
    }
    ++summary_.n_carried;
  }

  const json::Value& cases_;
  const DifferenceSink& report_;
  RenderOptions options_;
  const json::Object* conversations_ = nullptr;
  json::Object defaults_;
  TemplateSummary summary_;
};

}  // namespace

Result<TemplateSummary> verify_templates(const std::filesystem::path& template_dir,
                                         const std::filesystem::path& cases_json,
                                         const DifferenceSink& report) {
  KVASIR_TRY(const std::string text, read_file(cases_json, kMaxCasesBytes));
  KVASIR_TRY(const json::Value cases,
             json::parse(text, {.max_bytes = kMaxCasesBytes, .max_depth = 128}));
  const json::Value* renders = cases.find("renders");
  if (renders == nullptr || renders->as_object() == nullptr)
    return invalid("cases: no \"renders\"");
  Verifier verifier(cases, report);
  KVASIR_TRY_DO(verifier.prepare());
  for (const auto& [name, expected] : *renders->as_object()) {
    if (expected.as_object() == nullptr)
      return invalid("cases: renders of \"" + name + "\" are no object");
    std::filesystem::path path = template_dir / name;
    if (!name.ends_with(".jinja")) path += ".jinja";
    KVASIR_TRY(const std::string source, read_file(path, std::uint64_t{2} << 20));
    KVASIR_TRY_DO(verifier.verify(name, source, *expected.as_object()));
  }
  return verifier.summary();
}

}  // namespace kvasir::text
