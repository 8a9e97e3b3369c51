// TXT-20…28 and cases C12, C13 through the door.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kvasir::text {
namespace {

Result<Rendered> render(std::string source,
                        std::string_view variables = "{}",
                        const RenderOptions& options = {}) {
  auto compiled = ChatTemplate::compile(std::move(source));
  if (!compiled) return compiled.error();
  return compiled->render(*json::parse(variables)->as_object(), options);
}

std::string error_of(std::string source, std::string_view variables = "{}") {
  const auto r = render(std::move(source), variables);
  return r ? "rendered: " + r->text : r.error().what;
}

TEST(ChatTemplate, AnExceptionOfTheTemplateCarriesItsMessageAndLineC12) {
  const char* source =
      "{%- for message in messages %}\n"
      "{%- if loop.previtem is defined and loop.previtem.role == message.role %}\n"
      "{{- raise_exception(\"roles must alternate\") }}\n"
      "{%- endif %}{{ message.content }}{% endfor %}";

  EXPECT_EQ(
      error_of(
          source,
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})"),
      "chat template error: roles must alternate (line 3)");
}

TEST(ChatTemplate, TheDialectOfPublishedTemplatesWorksC13) {
  const RenderOptions options{.now = {2026, 1, 2, 3, 4, 5}};
  EXPECT_EQ(
      render("{{ strftime_now(\"%d %b %Y\") }}{% if x is defined %}x{% endif %}", "{}", options)
          ->text,
      "02 Jan 2026");
  EXPECT_EQ(render("{% for i in l %}{% if i > 2 %}{% break %}{% endif %}{{ loop.previtem }}{{ i "
                   "}};{% endfor %}",
                   R"({"l": [1, 2, 3]})")
                ->text,
            "1;12;");
  EXPECT_EQ(render("{{ tools[0] | tojson(ensure_ascii=False, indent=2) }}",
                   R"({"tools": [{"z": 1, "a": "café <&>"}]})")
                ->text,
            "{\n  \"z\": 1,\n  \"a\": \"café <&>\"\n}");
}

TEST(ChatTemplate, SyntaxErrorsNameTheTemplateAndTheLine) {
  const auto compiled = ChatTemplate::compile("a\n{% if x %}\n{{ 1 + }}", "chat_template.jinja");

  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().what,
            "chat_template.jinja: expected an expression, got '}}' (line 3)");
}

TEST(ChatTemplate, ErrorsSayWhatPythonSays) {
  EXPECT_EQ(error_of("{{ 'a' + 1 }}"),
            "chat template error: can only concatenate str (not \"int\") to str (line 1)");
  EXPECT_EQ(error_of("\n{{ x.y }}"), "chat template error: 'x' is undefined (line 2)");
  EXPECT_EQ(error_of("{{ m.a.b }}", R"({"m": {}})"),
            "chat template error: 'dict object' has no attribute 'a' (line 1)");
  EXPECT_EQ(error_of("{% for x in none %}{% endfor %}"),
            "chat template error: 'NoneType' object is not iterable (line 1)");
  EXPECT_EQ(
      error_of("{{ m.update({}) }}", R"({"m": {}})"),
      "chat template error: access to attribute 'update' of 'dict' object is unsafe. (line 1)");
}

TEST(ChatTemplate, SandboxHasNoWayOut) {
  EXPECT_FALSE(render("{% include 'x' %}"));
  EXPECT_FALSE(render("{% import 'x' as y %}"));
  EXPECT_EQ(render("{{ ''.__class__ }}")->text, "");
  EXPECT_FALSE(render("{{ ''.__class__.__mro__ }}"));
}

TEST(ChatTemplate, StrftimeKnowsTheCalendar) {
  const auto at = [](CivilTime now, const char* format) {
    return render("{{ strftime_now(f) }}", json::write(json::Object{{"f", format}}), {.now = now})
        ->text;
  };
  EXPECT_EQ(at({2024, 2, 29, 0, 0, 0}, "%A %j %U %W %V %G %I %p"),
            "Thursday 060 08 09 09 2024 12 AM");
  EXPECT_EQ(at({2027, 1, 1, 13, 5, 9}, "%a %G-W%V-%u %-d/%-m %l %e %y %I%p %%"),
            "Fri 2026-W53-5 1/1  1  1 27 01PM %");
  EXPECT_EQ(at({1970, 1, 1, 0, 0, 0}, "%s %F %T %q"), "0 1970-01-01 00:00:00 %q");
  const CivilTime t = CivilTime::from_unix(1767323045);
  EXPECT_EQ(at(t, "%F %T"), "2026-01-02 03:04:05");
  EXPECT_EQ(at(CivilTime::from_unix(-1), "%F %T"), "1969-12-31 23:59:59");
}

TEST(ChatTemplate, RangesMayHaveAMillionItems) {
  EXPECT_EQ(render("{{ range(1000000) | length }}")->text, "1000000");
  EXPECT_FALSE(render("{{ range(1000001) | length }}"));
}

TEST(ChatTemplate, GenerationBlocksAreTransparent) {
  EXPECT_EQ(render("{% generation %}{% set x = 1 %}a{% endgeneration %}{{ x }}")->text, "a1");
}

TEST(ChatTemplate, ManyThreadsRenderOneTemplate) {
  const auto compiled = ChatTemplate::compile(
      "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for i in range(50) %}{{ m('é' ~ i) }}{{ "
      "'abc'[1:] | length }}{% endfor %}");
  const std::string expected = compiled->render({})->text;
  std::vector<std::thread> threads;
  std::vector<int> n_equal(4);

  for (int& n : n_equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) n += compiled->render({})->text == expected ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();

  EXPECT_EQ(n_equal, std::vector<int>(4, 20));
}

TEST(ChooseTemplate, FollowsTheOrderOfSourcesTXT20) {
  TemplateSources sources;
  EXPECT_EQ(choose_template(sources).error().what,
            "this model has no chat template; use /v1/completions");
  sources.uses_default = true;
  EXPECT_EQ(choose_template(sources)->text, kDefaultChatTemplate);
  sources.gguf = "g";
  EXPECT_EQ(choose_template(sources)->text, "g");
  sources.tokenizer_config = *json::parse(R"({"chat_template": "c"})");
  EXPECT_EQ(choose_template(sources)->text, "c");
  sources.jinja_file = "j";
  EXPECT_EQ(choose_template(sources)->name, "chat_template.jinja");
  sources.override_text = "o";
  EXPECT_EQ(choose_template(sources)->text, "o");
}

TEST(ChooseTemplate, TheDefaultIsChatMl_TXT20) {
  const auto chat_ml = ChatTemplate::compile(std::string(kDefaultChatTemplate), "default");
  ASSERT_TRUE(chat_ml) << chat_ml.error().what;
  const auto variables = json::parse(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
          "add_generation_prompt": true})");

  EXPECT_EQ(chat_ml->render(*variables->as_object())->text,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChooseTemplate, PicksFromAListByNameWithDefaultAsFallback) {
  TemplateSources sources;
  sources.tokenizer_config = *json::parse(
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}, {"name": 3}]})");

  EXPECT_EQ(choose_template(sources)->text, "d");
  EXPECT_EQ(choose_template(sources, "tool_use")->text, "t");
  EXPECT_EQ(choose_template(sources, "rag")->text, "d");
}

}  // namespace
}  // namespace kvasir::text
