// TXT-29, TXT-31 and cases C11, C12: what happens to messages before the template sees them.
#include "text/chat_messages.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace kvasir::text {
namespace {

json::Value parse(std::string_view text) { return *json::parse(text); }

ChatTemplate compile(std::string source) {
  auto compiled = ChatTemplate::compile(std::move(source));
  EXPECT_TRUE(compiled) << (compiled ? "" : compiled.error().what);
  return *std::move(compiled);
}

constexpr const char* kStrings =
    "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kBoth =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}</>{% endfor %}";
constexpr const char* kPartsOnly =
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}</>{% "
    "endfor %}";

struct Model {
  explicit Model(std::string source)
      : chat(compile(std::move(source))), traits(probe_template(chat, {})) {}
  Result<Rendered> render(std::string_view messages, bool continues = false) const {
    ChatRendering request;
    request.variables["messages"] = parse(messages);
    request.continue_final_message = continues;
    return render_chat(chat, traits, std::move(request));
  }
  ChatTemplate chat;
  TemplateTraits traits;
};

TEST(ChatMessages, ProbingFindsWhatContentATemplateTakes) {
  EXPECT_EQ(Model(kStrings).traits.content, ContentForm::text);
  EXPECT_EQ(Model(kBoth).traits.content, ContentForm::any);
  EXPECT_EQ(Model(kPartsOnly).traits.content, ContentForm::parts);
  EXPECT_EQ(Model("{{ messages[0].content }}").traits.content, ContentForm::text);
}

TEST(ChatMessages, TextPartsAndStringsRenderAlikeC11) {
  for (const char* source : {kStrings, kBoth, kPartsOnly}) {
    const Model model(source);

    const auto whole = model.render(R"([{"role":"user","content":"1, 2,"}])");
    const auto parts = model.render(
        R"([{"role":"user","content":[{"type":"text","text":"1, "},{"type":"text","text":"2,"}]}])");

    ASSERT_TRUE(whole && parts) << source;
    EXPECT_EQ(whole->text, parts->text);
    EXPECT_NE(whole->text.find("<user>1, 2,</>"), std::string::npos);
  }
}

TEST(ChatMessages, PartsThatAreNoTextAreRefusedByEveryTemplate_MOD62) {
  for (const char* source : {kStrings, kBoth, kPartsOnly}) {
    const auto refusal = [&](const std::string& part) {
      const auto r = Model(source).render(
          R"([{"role":"user","content":[{"type":"text","text":"a"},)" + part + "]}]");
      return r ? "" : r.error().what;
    };
    EXPECT_EQ(refusal(R"({"type":"image_url","image_url":{}})"),
              "this model does not accept images");
    EXPECT_EQ(refusal(R"({"type":"text","text":5})"),
              "messages[0].content[1].text must be of type str");
    EXPECT_EQ(refusal("5"), "messages[0].content[1] must be an object with a type");
    EXPECT_NE(refusal(R"({"type":"input_audio"})").find("content[1]: this model does not accept"),
              std::string::npos);
  }
}

TEST(ChatMessages, NullAndMissingContentRenderAsEmptyC11) {
  const Model model(kStrings);

  EXPECT_EQ(
      model.render(R"([{"role":"user","content":"q"},{"role":"assistant","content":null}])")->text,
      "<user>q</><assistant></>");
  EXPECT_EQ(model.render(R"([{"role":"user","content":"q"},{"role":"assistant"}])")->text,
            "<user>q</><assistant></>");
  EXPECT_EQ(Model("{% for m in messages %}[{{ m.content }}]{% endfor %}")
                .render(R"([{"role":"user","content":"q"},{"role":"assistant","content":null}])")
                ->text,
            "[q][]");
}

TEST(ChatMessages, DeveloperBecomesSystemUnlessTheTemplateKnowsItC12) {
  const char* messages = R"([{"role":"developer","content":"x"},{"role":"user","content":"q"}])";

  EXPECT_EQ(Model(kStrings).render(messages)->text, "<system>x</><user>q</>");
  EXPECT_EQ(Model(std::string(kStrings) + "{# developer #}").render(messages)->text,
            "<developer>x</><user>q</>");
}

TEST(ChatMessages, DeveloperBecomesSystemWhenTheTemplateNamesItButLeavesItOut) {
  const Model model(
      "{% for m in messages %}{% if m.role != 'developer' %}<{{ m.role }}>{{ m.content }}{% endif "
      "%}{% endfor %}");

  EXPECT_EQ(
      model.render(R"([{"role":"developer","content":"x"},{"role":"user","content":"q"}])")->text,
      "<system>x<user>q");
}

TEST(ChatMessages, AnUnknownRoleIsRefusedC12) {
  const auto r = Model(kStrings).render(R"([{"role":"critic","content":"x"}])");

  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().what, "messages[0].role: unknown role \"critic\"");
}

TEST(ChatMessages, ARoleThatTheTemplateWouldDropIsRefusedC12) {
  const Model model(
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }}{% endif %}{% "
      "endfor %}");

  EXPECT_FALSE(model.render(R"([{"role":"system","content":"x"},{"role":"user","content":"q"}])"));
  EXPECT_TRUE(model.render(R"([{"role":"user","content":"q"}])"));
}

TEST(ChatMessages, ArgumentsOfToolCallsBecomeObjects) {
  const Model model(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ "
      "c.function.arguments.a }}"
      "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}");
  const auto r = model.render(
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": 5}"}},)"
      R"({"function":{"name":"f","arguments":"[1]"}}]}])");

  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(r->text, "q5{\"a\": 5}\"[1]\"");
}

TEST(ChatMessages, ATemplateThatConcatenatesArgumentsGetsThemAsText) {
  const Model model(
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '!' + "
      "c.function.arguments }}"
      "{% endfor %}{% endfor %}");

  EXPECT_TRUE(model.traits.needs_text_arguments);
  EXPECT_EQ(model
                .render(R"([{"role":"user","content":"q"},{"role":"assistant","content":null,)"
                        R"("tool_calls":[{"function":{"name":"f","arguments":{"a":5}}}]}])")
                ->text,
            "q!{\"a\":5}");
}

TEST(ChatMessages, SchemaNodesWithoutATypeGetOne) {
  const json::Value tools = prepare_tools(parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"items":{}},"b":{"enum":[1,2]},"c":{},)"
      R"("d":{"enum":["x"]},"e":{"type":"number"},"f":{"enum":[1.5,2]},"g":{"enum":[true]}}}}}])"));

  EXPECT_EQ(
      json::write(tools),
      R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"items":{"type":"string"},"type":"array"},)"
      R"("b":{"enum":[1,2],"type":"integer"},"c":{"type":"string"},"d":{"enum":["x"],"type":"string"},"e":{"type":"number"},)"
      R"("f":{"enum":[1.5,2],"type":"number"},"g":{"enum":[true],"type":"boolean"}},"type":"object"}}}])");
}

TEST(ChatMessages, ContinuingEndsBehindTheFinalContentTXT31) {
  for (const char* source : {kStrings, kBoth, kPartsOnly}) {
    const Model model(source);

    const auto text = model.render(
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"1, 2, "}])", true);
    const auto parts = model.render(
        R"([{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"1, 2, "}]}])",
        true);

    ASSERT_TRUE(text && parts);
    EXPECT_EQ(text->text, "<user>q</><assistant>1, 2, ");
    EXPECT_EQ(parts->text, text->text);
    EXPECT_EQ(text->spans.back(), (OriginSpan{21, 27, true}));
  }
}

TEST(ChatMessages, OnlyAnAssistantMessageCanBeContinued) {
  EXPECT_FALSE(Model(kStrings).render(R"([{"role":"user","content":"q"}])", true));
  EXPECT_FALSE(Model(kStrings).render("[]", true));
}

TEST(ChatMessages, PublishedTemplatesProbeAndRenderNullContentWithToolCallsC11) {
  const std::filesystem::path folder = std::filesystem::path(KVASIR_SHARED) / "templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no shared templates here";
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find("wen3") == std::string::npos) continue;
    const Model model(*read_file(entry.path(), 1 << 20));

    const auto r = model.render(
        R"([{"role":"user","content":"2+2"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",)"
        R"("function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"4"}])");

    EXPECT_TRUE(r) << entry.path() << (r ? "" : r.error().what);
    EXPECT_TRUE(r && r->text.find("None") == std::string::npos) << entry.path();
    ++n;
  }
  EXPECT_GT(n, 0u);
}

}  // namespace
}  // namespace kvasir::text
