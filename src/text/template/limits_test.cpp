// TXT-30: what a hostile template or hostile variables can cost.
#include <gtest/gtest.h>

#include <ctime>

#include "text/chat_template.h"

namespace kvasir::text {
namespace {

constexpr const char* kExceeded = "chat template exceeded its limits";

Result<Rendered> render(std::string source, std::string_view variables = "{}") {
  auto compiled = ChatTemplate::compile(std::move(source));
  if (!compiled) return compiled.error();
  return compiled->render(*json::parse(variables)->as_object());
}

class Bomb : public ::testing::TestWithParam<const char*> {};

TEST_P(Bomb, EndsWithTheLimitsMessageInUnderASecond) {
  const std::clock_t start = std::clock();  // of the process: the machine may be busy
  const auto r =
      render(GetParam(),
             R"({"messages": [{"role": "user", "content": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}]})");
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;

  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().what, kExceeded);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds, 1.0);
#endif
}

INSTANTIATE_TEST_SUITE_P(
    Templates,
    Bomb,
    ::testing::Values(
        "{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{{ ('y' * 100000) | length }}{% endfor %}",
        "{% for i in range(1000000) %}{% for j in range(1000000) %}{{ i * j ~ 'x' }}{% endfor %}{% "
        "endfor %}",
        "{% for i in range(1000000) %}{% for j in range(9) %}{% set x = {'a': [i, j]} %}{% endfor "
        "%}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ [0] * 1000000000 }}",
        "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "endfor %}{{ ns.s | tojson }}",
        "{% set ns = namespace(s=1, t=1) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "set ns.t = [ns.t, ns.t] %}"
        "{% endfor %}{{ ns.s == ns.t }}",
        "{% set ns = namespace(s=1, t=1) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "set ns.t = [ns.t, ns.t] %}"
        "{% endfor %}{{ ns.s < ns.t }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% "
        "endfor %}{{ ns.s }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
        "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) "
        "}}",
        "{% set ns = namespace(g=[1]) %}{% for i in range(100000) %}{% set ns.g = ns.g | "
        "map('upper') %}{% endfor %}{{ ns.g | list }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format('a') }}{{ '%*d' % (1000000000, 1) }}",
        "{{ 'a'.center(1000000000) }}",
        "{{ 'a' | indent(1000000000) }}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.replace('a', 'bbbbbbbb') }}{% "
        "endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set x = s.upper() %}{% endfor "
        "%}",
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% "
        "endfor %}",
        "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% set x = s[i] %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.split('a') | length }}{% "
        "endfor %}",
        "{% set s = 'a' * 30000000 %}{{ (s + 'b') in (s + s) }}{% for i in range(1000) %}{{ "
        "s.rsplit('aab', 1) | length }}{% endfor %}",
        "{% set l = range(100000) | list %}{% for i in range(100000) %}{% if -1 in l %}{% endif "
        "%}{% endfor %}",
        "{% set l = range(1000000) | list %}{% for i in range(1000) %}{{ l | sort | length }}{% "
        "endfor %}",
        "{% set l = range(100000) | list %}{% for i in range(100000) %}{% set _ = l.insert(0, i) "
        "%}{% endfor %}",
        "{% set d = {} %}{% for i in range(100000) %}{% set _ = d.update({i: i}) %}{% endfor %}{% "
        "for i in range(100000) %}"
        "{% set _ = d.pop(i) %}{% endfor %}",
        "{% set s = messages[0].content %}{% for i in range(40) %}{% set s = s %}{% endfor %}{% "
        "set ns = namespace(s=s) %}"
        "{% for i in range(40) %}{% set ns.s = ns.s + '-' + ns.s %}{% endfor %}",
        "{% for i in range(1000000) %}{{ "
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% "
        "endfor %}",
        "{% for i in range(1000000) %}{% set x = '%s' | format(i) | trim | upper | lower | "
        "replace('1', '2') %}{% endfor %}"));

TEST(TemplateLimits, TenMillionNodesAreTheLimitNotFewer) {
  // Three nodes a pass (statement, expression, item): nine million pass.
  EXPECT_TRUE(render("{% for i in range(1000000) %}{{ i }}{% endfor %}"));
}

TEST(TemplateLimits, DeepNestingIsRefusedByTheParser) {
  for (const char* unit : {"(", "[", "-", "not ", "{'a':", "x[", "f("}) {
    std::string source = "{{ ";
    for (int i = 0; i < 100000; ++i) source += unit;
    EXPECT_FALSE(render(source + "1 }}")) << unit;
  }
  std::string ifs;
  for (int i = 0; i < 10000; ++i) ifs += "{% if true %}";
  EXPECT_FALSE(render(ifs));
}

TEST(TemplateLimits, OrdinaryNestingIsFine) {
  std::string parentheses = "{{ ";
  for (int i = 0; i < 60; ++i) parentheses += "(";
  parentheses += "1";
  for (int i = 0; i < 60; ++i) parentheses += ")";
  EXPECT_EQ(render(parentheses + " }}")->text, "1");
  EXPECT_EQ(render("{% macro m(n) %}{{ n }}{% if n > 1 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ "
                   "m(150) }}")
                ->text.size(),
            342u);
  std::string sum = "{{ 0";
  for (int i = 0; i < 500; ++i) sum += " + 1";
  EXPECT_EQ(render(sum + " }}")->text, "500");
}

TEST(TemplateLimits, ASourceAboveOneMebibyteIsRefused) {
  EXPECT_FALSE(ChatTemplate::compile(std::string((1 << 20) + 1, 'a')));
  EXPECT_TRUE(ChatTemplate::compile(std::string(1 << 20, 'a')));
}

TEST(TemplateLimits, AFullSourceOfTagsCompilesQuickly) {
  std::string source;
  for (int i = 0; source.size() < (1 << 20) - 100; ++i) {
    const std::string name = "v" + std::to_string(i);
    source += "{% if " + name + " %}{% set " + name + " = 1 %}{% endif %}";
  }

  const std::clock_t start = std::clock();  // of the process: the machine may be busy
  EXPECT_TRUE(render(source));
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds, 1.0);
#endif
}

TEST(TemplateLimits, ALongContentIsNoBomb) {
  const std::string content(8u << 20, 'x');
  json::Object variables;
  variables["messages"] = json::Array{json::Object{{"role", "user"}, {"content", content}}};
  const auto t = ChatTemplate::compile(
      "{% for m in messages %}{% set c = m.content | trim %}{% if '</think>' in c %}{% set c = "
      "c.split('</think>')[-1] %}"
      "{% endif %}{{ '<|' + m.role + '|>' + c.lstrip('\\n') + '<|end|>' }}{% endfor %}");

  const auto r = t->render(variables);

  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(r->text.size(), content.size() + 15);
}

}  // namespace
}  // namespace kvasir::text
